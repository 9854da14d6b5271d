"""`servegate load`: load tests that tell the truth, their reports, and what differs between two."""

import typer

from serve.cli.load import job, reports, run, scenario, worker

app = typer.Typer(
    no_args_is_help=True,
    help="Load tests, and their reports.\n\n"
    "Example: servegate load run --model digits --rate 200 --for 60s --slo 'p99<20ms,errors<0.1%'",
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("scenario")(scenario.run_scenario)
app.command("scenarios")(scenario.list_scenarios)
app.command("report")(reports.show_report)
app.command("compare")(reports.compare_reports)
app.command("ls")(reports.list_reports)
app.command("worker")(worker.work)
app.command("job")(job.print_job)
