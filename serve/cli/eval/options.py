"""The options of several `eval` commands."""

from typing import Annotated

import typer

from serve.cli.client import segment

Identity = Annotated[str, typer.Argument(metavar="ID", help="Id from `servegate eval ls`.")]
Label = Annotated[
    str,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="Column or array with the labels (default: label, labels, y, …).",
        rich_help_panel="Dataset",
    ),
]
Slices = Annotated[
    str,
    typer.Option(
        "--slices",
        metavar="COLUMN,…",
        help="Columns to group the rows by.",
        rich_help_panel="Dataset",
    ),
]
PATH = "/api/evaluations"


def path_of(identity: str) -> str:
    """Where an evaluation is in the admin API."""
    return f"{PATH}/{segment(identity)}"
