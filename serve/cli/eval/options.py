"""The options of several `eval` commands."""

from typing import Annotated

import typer

from serve.cli.client import segment

Identity = Annotated[str, typer.Argument(metavar="ID", help="As `servegate eval ls` has it.")]
Label = Annotated[
    str, typer.Option("--label", metavar="COLUMN", help="The label's column or array.")
]
Slices = Annotated[
    str, typer.Option("--slices", metavar="COLUMNS", help="Columns that rows are grouped by.")
]
PATH = "/api/evaluations"


def path_of(identity: str) -> str:
    """Where an evaluation is in the admin API."""
    return f"{PATH}/{segment(identity)}"
