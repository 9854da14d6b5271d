"""`servegate model`: models, their versions and states."""

from typing import Annotated, Any

import typer

from serve.cli import lint, model_load, push, skew, versions
from serve.cli.asked import parse_asked
from serve.cli.client import connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.cli.panels import Grouped

app = typer.Typer(
    no_args_is_help=True,
    help="Manage models and their versions.\n\nExample: servegate model ls",
    rich_markup_mode=None,
)
app.command("push", cls=Grouped)(push.push)
app.command("lint")(lint.lint)
app.command("skew")(skew.check_skew)
app.command("diff")(versions.show_diff)
app.command("pull")(versions.pull)
app.command("load")(model_load.load)
app.command("unload")(model_load.unload)
app.command("rm")(versions.remove)
app.command("restore")(versions.restore)
app.command("gc")(versions.collect_garbage)


@app.command("ls")
def list_models(admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False) -> None:
    """List all models.

    Example: servegate model ls
    """
    models = connect(admin_url, key_file).get("/api/models")
    if json:
        as_json(models)
        return
    table(
        ("MODEL", "STATE", "VERSIONS", "LABELS", "SPLIT", "OBJECTIVE", "PROBLEM"),
        [
            (
                model["name"],
                model["state"],
                " ".join(_version_word(version) for version in model["versions"]),
                " ".join(f"{label}={version}" for label, version in model["labels"].items()),
                _split(model),
                model["objective"],
                "; ".join(model["problems"]),
            )
            for model in models
        ],
    )


@app.command("show")
def show_model(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@V|:label]", help="Model, or one version of it.")
    ],
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show a model and its versions, or one version and its origin.

    Example: servegate model show digits

    Example: servegate model show digits@3
    """
    admin = connect(admin_url, key_file)
    asked = parse_asked(name)
    if asked.selector:
        versions.show_version(admin, asked, json=json)
        return
    model = admin.get(f"/api/models/{segment(name)}")
    if json:
        as_json(model)
        return
    print(f"{model['name']}: {model['state']}, pool {model['pool']}")
    if model["card"].get("summary"):
        print(f"  {model['card']['summary']}")
    print(f"  split: {_split(model) or 'none'}")
    print(f"  objective: {model['objective'] or 'none'}")
    for problem in model["problems"]:
        print(f"  problem: {problem}")
    table(
        ("VERSION", "STATE", "LABELS", "REPLICAS", "REASON"),
        [
            (
                str(version["version"]),
                _state(version, model),
                " ".join(version["labels"]),
                versions.holders_of(version["replicas"], version["flavours"]),
                version["reason"],
            )
            for version in model["versions"]
        ],
    )


@app.command("set")
def set_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")],
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Service-level objective, for example 'p99<50ms'; '' removes it.",
        ),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="POOL", help="Pool whose replicas load the model.")
    ] = None,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Set a model's service-level objective or pool.

    Example: servegate model set digits --objective 'p99<50ms'
    """
    body = {
        key: value for key, value in (("objective", objective), ("pool", pool)) if value is not None
    }
    path = f"/api/models/{segment(name)}"
    tell_done(connect(admin_url, key_file, reason=reason).patch(path, body), f"updated {name}")


def tell_done(answer: dict[str, Any], what: str) -> None:
    """Report a change, and whether every worker uses it already."""
    where = "active on every worker" if answer["in_force"] else "not yet active on every worker"
    say(f"{what}; {where} (generation {answer['generation']})")


def _state(version: dict[str, Any], model: dict[str, Any]) -> str:
    """As `model show NAME@V` says it: a version that is ready and gets calls is serving."""
    is_called = version["labels"] or model["split"].get(str(version["version"]), 0)
    return "serving" if version["state"] == "ready" and is_called else str(version["state"])


def _version_word(version: dict[str, Any]) -> str:
    number = str(version["version"])
    return number if version["state"] == "ready" else f"{number}({version['state']})"


def _split(model: dict[str, Any]) -> str:
    words = " ".join(f"{version}={weight}" for version, weight in model["split"].items())
    return words if model["routed"] or not words else f"{words} (newest)"
