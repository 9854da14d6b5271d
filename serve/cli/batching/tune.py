"""`servegate batching tune`: the batching with the highest throughput under an objective."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile

_SEARCH, _CALLS, _RESULT = "Search", "Calls", "Result"  # groups in the help


def tune(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="MODEL[@V|:label]", help="Model, version or label.")
    ],
    slo: Annotated[
        str,
        typer.Option(
            "--slo",
            metavar="OBJECTIVE",
            help="Objective, for example p99<50ms (default: the model's objective).",
            rich_help_panel=_SEARCH,
        ),
    ] = "",
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="DURATION",
            help="Duration of the search, for example 5m.",
            rich_help_panel=_SEARCH,
        ),
    ] = "5m",
    replica: Annotated[
        str,
        typer.Option(
            "--replica",
            metavar="NAME",
            help="Replica to measure on; it gets no other calls meanwhile (default: a temporary "
            "Triton).",
            rich_help_panel=_SEARCH,
        ),
    ] = "",
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.csv",
            help="Arrival times of real calls (default: random arrivals).",
            rich_help_panel=_CALLS,
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            "--samples",
            metavar="FILE.npz",
            help="Rows of real inputs (default: random values).",
            rich_help_panel=_CALLS,
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]@FILE|random",
            help="Input, as in servegate infer (repeatable).",
            rich_help_panel=_CALLS,
        ),
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            "--rows",
            metavar="N|N:WEIGHT,…",
            help="Rows per call, or a mixture such as 1:80,8:20.",
            rich_help_panel=_CALLS,
        ),
    ] = "1",
    instances: Annotated[
        str,
        typer.Option(
            "--instances",
            metavar="N,…",
            help="Numbers of instances to try.",
            rich_help_panel=_SEARCH,
        ),
    ] = "1,2",
    max_batch: Annotated[
        int,
        typer.Option(
            "--max-batch",
            min=0,
            metavar="N",
            help="Largest batch to try.",
            rich_help_panel=_SEARCH,
        ),
    ] = 32,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="DIR",
            help="Continue the search in this report folder.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Parent of the new report folder.",
            rich_help_panel=_RESULT,
        ),
    ] = Path("tune-reports"),
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Apply the result if it is a gain.", rich_help_panel=_RESULT),
    ] = False,
    watch: Annotated[
        str,
        typer.Option(
            "--watch",
            metavar="DURATION",
            help="Time for which --apply watches the objective, and rolls back if it is missed.",
            rich_help_panel=_RESULT,
        ),
    ] = "60s",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Find the best batching configuration.

    Searches for the highest throughput under an objective. Measures on a temporary Triton, or on a
    replica taken out of rotation. Changes nothing without --apply.

    Example: servegate batching tune digits --slo 'p99<50ms' --budget 5m

    Example: servegate batching tune digits@2 --replica local-1 --rows 1:80,8:20 --apply

    Example: servegate batching tune digits --resume tune-reports/20261122-101500-digits-tune
    """
    from serve.cli.batching.tune_wish import Wish
    from serve.cli.batching.tuning import run
    from serve.cli.endings import report_end
    from serve.cli.load.command import command_of
    from serve.cli.server import admin_server, announced
    from serve.cli.talk import talk
    from serve.load.arrivals import parse_seconds
    from serve.load.running import require_locust

    talking = talk(json=json)
    with report_end(talking, lambda: "stopped; the measurements are saved"):
        require_locust()
        admin = announced(admin_server(admin_url))
        wish = Wish(
            asked=name,
            objective=slo,
            budget=parse_seconds(budget),
            replica=replica,
            trace=trace,
            inputs=(*(inputs or ()), *((f"@{samples}",) if samples else ())) or ("random",),
            rows=rows,
            instances=instances,
            max_batch=max_batch,
            resume=resume,
            out=out,
            watch=parse_seconds(watch) if apply else None,
            admin=admin,
            key_file=key_file,
            command=command_of(context, admin_url=admin.url),
        )
        code = run(wish, talking)
    if code:
        raise typer.Exit(code)
