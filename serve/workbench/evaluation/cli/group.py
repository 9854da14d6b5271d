"""`servegate eval`: evaluations of one or two versions, and the datasets that they are about."""

import typer

from serve.cli.panels import Grouped
from serve.workbench.evaluation.cli import changes, datasets, rows, run, view

app = typer.Typer(
    no_args_is_help=True,
    help="Evaluate versions on labelled datasets.\n\n"
    "Example: servegate eval run digits --dataset held-out/ -a 1 -b 2 --gate 'drop<=0.5pp'",
    rich_markup_mode=None,
)
app.command("run", cls=Grouped)(run.run)
app.command("ls")(view.list_evaluations)
app.command("show")(view.show_evaluation)
app.command("rows")(rows.list_rows)
app.command("export")(rows.export_rows)
app.command("gate")(view.judge)
app.command("cancel")(changes.cancel)
app.command("resume")(changes.resume)
app.command("rm")(changes.remove)

dataset = typer.Typer(
    no_args_is_help=True,
    help="Manage the labelled datasets on the gateway.\n\nExample: servegate eval dataset push "
    "held-out/ --name held-out",
    rich_markup_mode=None,
)
dataset.command("push")(datasets.push)
dataset.command("ls")(datasets.list_datasets)
dataset.command("show")(datasets.show)
dataset.command("rm")(datasets.remove)
app.add_typer(dataset, name="dataset")
