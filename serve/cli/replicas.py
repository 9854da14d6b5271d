"""`servegate replica`: the Triton servers and what they hold."""

import typer

from serve.cli.client import connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table

app = typer.Typer(
    no_args_is_help=True,
    help="Show the replicas (Triton servers).\n\nExample: servegate replica ls",
    rich_markup_mode=None,
)


@app.callback()
def group() -> None:
    """Show the replicas (Triton servers).

    Example: servegate replica ls
    """


@app.command("ls")
def list_replicas(
    admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """List replicas, their loaded models, and discovery problems.

    Example: servegate replica ls
    """
    control = connect(admin_url, key_file)
    replicas = control.get("/api/replicas")
    if json:
        as_json(replicas)
        return
    zones = any(replica.get("zone") for replica in replicas)
    columns = ["REPLICA", "STATE", "FOR", "POOL", *(["ZONE"] if zones else []), "ADDRESS"]
    table(
        (*columns, "LOADED", "PENDING", "CPU", "PROBLEM"),
        [
            (
                replica["name"],
                replica["state"],
                f"{replica['seconds']:.0f} s",
                replica["pool"],
                *([replica.get("zone") or "-"] if zones else []),
                replica["address"],
                " ".join(
                    f"{model}@{','.join(map(str, versions))}"
                    for model, versions in replica["held"].items()
                ),
                _or_dash(replica["pending"]),
                _share(replica["cpu_utilization"]),
                replica["why"] or "; ".join(replica["failures"].values()),
            )
            for replica in replicas
        ],
    )
    for source in control.get("/api/discovery"):
        for problem in ([source["why"]] if not source["up"] else []) + source["problems"]:
            say(f"{source['name']}: {problem}")


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
