"""`servegate batching tune`: the batching with the highest throughput under an objective."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile


def tune(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="MODEL[@V|:label]", help="A model, a version, or a label.")
    ],
    slo: Annotated[
        str, typer.Option("--slo", help="What has to be met, as p99<50ms.  [the model's objective]")
    ] = "",
    budget: Annotated[str, typer.Option("--budget", help="How long it may take.")] = "5m",
    replica: Annotated[
        str, typer.Option("--replica", help="Measure on this one, spared.  [a throw-away Triton]")
    ] = "",
    trace: Annotated[
        Path | None, typer.Option("--trace", help="A CSV file with the times of real calls.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", help="An .npz file with rows of real inputs.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="[NAME=]@FILE|random", help="As servegate infer takes it."),
    ] = None,
    rows: Annotated[
        str, typer.Option("--rows", help="Rows of a call; 1:80,8:20 for a mixture.")
    ] = "1",
    instances: Annotated[
        str, typer.Option("--instances", help="Numbers of instances that are allowed.")
    ] = "1,2",
    max_batch: Annotated[
        int, typer.Option("--max-batch", min=0, help="The largest batch to think of.")
    ] = 32,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Go on with what was measured in this folder.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Where the folder of the report is made.")
    ] = Path("tune-reports"),
    apply: Annotated[
        bool, typer.Option("--apply", help="Put what was found live, if it is a gain.")
    ] = False,
    watch: Annotated[
        str, typer.Option("--watch", help="How long --apply watches the objective.")
    ] = "60s",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Find the batching with the highest throughput under an objective, with real load.

    Nothing is changed without --apply. Measured is a Triton of its own, or a spared replica.

    Example: servegate batching tune digits --slo 'p99<50ms' --budget 5m

    Example: servegate batching tune digits@2 --replica local-1 --rows 1:80,8:20 --apply

    Example: servegate batching tune digits --resume tune-reports/20261122-101500-digits-tune
    """
    from serve.cli.batching.tune_wish import Wish
    from serve.cli.batching.tuning import run
    from serve.cli.endings import told
    from serve.cli.load.command import command_of
    from serve.cli.server import admin_server, announced
    from serve.cli.talk import talk
    from serve.load.arrivals import parse_seconds
    from serve.load.running import require_locust

    talking = talk(json=json)
    with told(talking, lambda: "stopped; what was measured is kept"):
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
