"""Help texts of commands with many options, in groups: an option's `rich_help_panel` names its own.

Typer itself draws groups only where Rich formats the help, which it does not do here.
"""

from typing import Any

import typer
from typer.core import TyperCommand


def option(group: str, metavar: str, text: str, *names: str, **more: Any) -> Any:
    """An option in a group of the help; `names` and `more` are those of `typer.Option`."""
    shown = metavar or None
    return typer.Option(*names, metavar=shown, rich_help_panel=group, help=text, **more)


class Grouped(TyperCommand):
    """A command whose help has a section for each group of options, in the order of the code."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then each group."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if one.param_type_name == "argument" else "Options"
                name = getattr(one, "rich_help_panel", None) or kind
                sections.setdefault(name, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)
