"""`servegate load`: load tests that tell the truth, their reports, and what differs between two."""

import typer

from serve.cli import load_job, load_reports, load_run, load_scenario, load_worker

app = typer.Typer(
    no_args_is_help=True,
    help="Load tests, and their reports.\n\n"
    "Example: servegate load run --model digits --rate 200 --for 60s --slo 'p99<20ms,errors<0.1%'",
    rich_markup_mode=None,
)
app.command("run")(load_run.run)
app.command("scenario")(load_scenario.run_scenario)
app.command("scenarios")(load_scenario.list_scenarios)
app.command("report")(load_reports.show_report)
app.command("compare")(load_reports.compare_reports)
app.command("ls")(load_reports.list_reports)
app.command("worker")(load_worker.work)
app.command("job")(load_job.print_job)
