"""`servegate replica`: the Triton servers and what they hold."""

import typer

from serve.cli.client import DEFAULT_URL, connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, table

app = typer.Typer(
    no_args_is_help=True,
    help="The Triton servers.\n\nExample: servegate replica ls",
    rich_markup_mode=None,
)


@app.callback()
def group() -> None:
    """The Triton servers.

    Example: servegate replica ls
    """


@app.command("ls")
def list_replicas(
    admin_url: AdminUrl = DEFAULT_URL, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """List all replicas with what they hold.

    Example: servegate replica ls
    """
    replicas = connect(admin_url, key_file).get("/api/replicas")
    if json:
        as_json(replicas)
        return
    table(
        ("REPLICA", "STATE", "FOR", "POOL", "ADDRESS", "HOLDS", "PENDING", "CPU", "PROBLEM"),
        [
            (
                replica["name"],
                replica["state"],
                f"{replica['seconds']:.0f} s",
                replica["pool"],
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


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
