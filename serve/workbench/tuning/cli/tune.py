"""`servegate batching tune`: the batching with the highest throughput under an objective."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.panels import option

_SEARCH, _CALLS, _RESULT = "Search", "Calls", "Result"  # groups in the help


def tune(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="MODEL[@V|:label]", help="Model, version or label.")
    ],
    slo: Annotated[
        str,
        option(
            _SEARCH,
            "OBJECTIVE",
            "Objective, for example p99<50ms (default: the model's objective).",
            "--slo",
        ),
    ] = "",
    budget: Annotated[
        str,
        option(_SEARCH, "DURATION", "Duration of the search, for example 5m.", "--budget"),
    ] = "5m",
    replica: Annotated[
        str,
        option(
            _SEARCH,
            "NAME",
            "Replica to use for the measurements; it gets no other traffic during the search "
            "(default: a temporary Triton).",
            "--replica",
        ),
    ] = "",
    trace: Annotated[
        Path | None,
        option(
            _CALLS, "FILE.csv", "Arrival times of real calls (default: random arrivals).", "--trace"
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        option(_CALLS, "FILE.npz", "Rows of real inputs (default: random values).", "--samples"),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        option(
            _CALLS,
            "[NAME=]@FILE|random",
            "Input: an image, .npy, .npz, .json, .csv or .txt file, or random values "
            "(repeatable; default: random).",
            "--input",
        ),
    ] = None,
    rows: Annotated[
        str,
        option(
            _CALLS,
            "N|N:WEIGHT,…",
            "Rows per call, or a mix of ROWS:WEIGHT such as 1:80,8:20.",
            "--rows",
        ),
    ] = "1",
    instances: Annotated[
        str,
        option(_SEARCH, "N,…", "Instance counts to try.", "--instances"),
    ] = "1,2",
    max_batch: Annotated[
        int,
        option(_SEARCH, "N", "Largest batch size to try.", "--max-batch", min=0),
    ] = 32,
    resume: Annotated[
        Path | None,
        option(_SEARCH, "DIR", "Continue the search in this report folder.", "--resume"),
    ] = None,
    out: Annotated[
        Path,
        option(_RESULT, "DIR", "Folder in which the report folder is created.", "--out"),
    ] = Path("tune-reports"),
    apply: Annotated[
        bool,
        option(
            _RESULT, "", "Apply the result if it improves on the current configuration.", "--apply"
        ),
    ] = False,
    watch: Annotated[
        str,
        option(
            _RESULT,
            "DURATION",
            "After --apply, roll back if the model misses its objective within this time.",
            "--watch",
        ),
    ] = "60s",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Find the best batching configuration.

    Finds the configuration with the highest throughput that meets the objective. Runs the
    measurements on a temporary Triton, or on a replica taken out of rotation. Changes nothing
    without --apply.

    Example: servegate batching tune digits --slo 'p99<50ms' --budget 5m

    Example: servegate batching tune digits@2 --replica local-1 --rows 1:80,8:20 --apply

    Example: servegate batching tune digits --resume tune-reports/20261122-101500-digits-tune
    """
    from serve.cli.endings import report_end
    from serve.cli.server import admin_server, announced
    from serve.cli.talk import talk
    from serve.core.texts import parse_seconds
    from serve.workbench.loadtest.cli.command import command_of
    from serve.workbench.loadtest.runner import require_locust
    from serve.workbench.tuning.cli.options import TuningRequest
    from serve.workbench.tuning.cli.tuner import run

    talking = talk(json=json)
    with report_end(talking, lambda: "stopped; the measurements are saved"):
        require_locust()
        admin = announced(admin_server(admin_url))
        wish = TuningRequest(
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
