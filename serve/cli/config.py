"""`servegate config`: the settings, their meaning, and where each value comes from."""

import dataclasses
import os
from pathlib import Path

import typer

from serve.cli.options import AsJson
from serve.cli.output import as_json, table
from serve.settings import Settings, load

app = typer.Typer(
    no_args_is_help=True,
    help="Show the settings.\n\nExample: servegate config explain",
    rich_markup_mode=None,
)
_HIDDEN = frozenset({"secret", "database"})


@app.command("show")
def show(json: AsJson = False) -> None:
    """Show the effective settings in the format of servegate.toml.

    Example: servegate config show
    """
    settings = load({}, os.environ, Path.cwd()).settings
    values = {row.name: _value(settings, row.name) for row in dataclasses.fields(Settings)}
    if json:
        as_json(values)
        return
    for name, value in values.items():
        print(f"{name} = {_toml(value)}")


@app.command("explain")
def explain(json: AsJson = False) -> None:
    """Show each setting with its value, source and meaning.

    Example: servegate config explain
    """
    explained = load({}, os.environ, Path.cwd())
    rows = [
        {
            "setting": row.name,
            "value": _value(explained.settings, row.name),
            "source": explained.sources[row.name],
            "meaning": row.metadata["text"],
        }
        for row in dataclasses.fields(Settings)
    ]
    if json:
        as_json(rows)
        return
    table(
        ("SETTING", "VALUE", "SOURCE", "MEANING"),
        [(str(r["setting"]), _toml(r["value"]), str(r["source"]), str(r["meaning"])) for r in rows],
    )


def _value(settings: Settings, name: str) -> object:
    value = getattr(settings, name)
    return "(hidden)" if name in _HIDDEN and value else value


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{part}"' for part in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
