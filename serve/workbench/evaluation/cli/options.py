"""The options of several `eval` commands."""

from typing import Annotated

import typer

from serve.cli.client import segment
from serve.cli.panels import option

Identity = Annotated[str, typer.Argument(metavar="ID", help="ID from `servegate eval ls`.")]
Label = Annotated[
    str,
    option(
        "Dataset",
        "COLUMN",
        "Column or array that contains the labels (default: the first of label, labels, class, "
        "target and y that exists).",
        "--label",
    ),
]
Slices = Annotated[
    str,
    option("Dataset", "COLUMN,…", "Columns to group the rows by.", "--slices"),
]
PATH = "/api/evaluations"


def path_of(identity: str) -> str:
    """Where an evaluation is in the admin API."""
    return f"{PATH}/{segment(identity)}"
