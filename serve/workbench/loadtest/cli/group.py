"""`servegate load`: load tests, their reports, and comparisons of two reports."""

import typer

from serve.cli.panels import Grouped
from serve.workbench.loadtest.cli import job, reports, run, scenario, worker

app = typer.Typer(
    no_args_is_help=True,
    help="Run load tests, and show their reports.\n\n"
    "Example: servegate load run --model digits --rate 200 --for 60s --slo 'p99<20ms,errors<0.1%'",
    rich_markup_mode=None,
)
app.command("run", cls=Grouped)(run.run)
app.command("scenario", cls=Grouped)(scenario.run_scenario)
app.command("scenarios")(scenario.list_scenarios)
app.command("report")(reports.show_report)
app.command("compare")(reports.compare_reports)
app.command("ls")(reports.list_reports)
app.command("worker")(worker.work)
app.command("job")(job.print_job)
