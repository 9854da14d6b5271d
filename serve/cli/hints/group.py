"""`servegate hints`: how many replicas pools should have, why, and what is allowed."""

import typer

from serve.cli.hints import explain, set, show, watch
from serve.cli.panels import Grouped
from serve.workbench.simulator.cli import simulate

app = typer.Typer(
    no_args_is_help=True,
    help="Show scaling hints (how many replicas each pool should have) and set their "
    "bounds.\n\nExample: servegate hints show",
    rich_markup_mode=None,
)
app.command("show")(show.show)
app.command("watch")(watch.watch)
app.command("explain")(explain.explain)
app.command("set", cls=Grouped)(set.set_pool)
app.command("simulate", cls=Grouped)(simulate.simulate)
