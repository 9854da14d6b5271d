"""`servegate batching`: see, check, tune and change how versions are batched."""

import typer

from serve.cli.batching import lint, set, show
from serve.cli.features import add_command
from serve.cli.panels import Grouped

app = typer.Typer(
    no_args_is_help=True,
    help="Show, check, change and tune a version's batching configuration.\n\n"
    "Example: servegate batching show digits",
    rich_markup_mode=None,
)
app.command("show")(show.show)
app.command("lint", cls=Grouped)(lint.lint)
app.command("set", cls=Grouped)(set.set_configuration)
add_command(app, "tuning.cli.tune", "tune", under="batching")
