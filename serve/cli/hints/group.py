"""`servegate hints`: how many replicas pools should have, why, and what is allowed."""

import typer

from serve.cli.features import add_command
from serve.cli.hints import set, show, watch
from serve.cli.panels import Grouped

app = typer.Typer(
    no_args_is_help=True,
    help="Show scaling hints (how many replicas each pool should have) and set their "
    "bounds.\n\nExample: servegate hints show",
    rich_markup_mode=None,
)
app.command("show")(show.show)
app.command("watch")(watch.watch)
app.command("explain")(show.explain)
app.command("set", cls=Grouped)(set.set_pool)
add_command(app, "simulator.cli.simulate", "simulate", under="hints")
