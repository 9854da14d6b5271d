"""`servegate hints simulate`: what this policy would cost, and others, under a load or a trace."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile

Loads = Annotated[
    list[str] | None,
    typer.Option("--load", metavar="NAME", help="A load by its name; repeatable. Default: all."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="servegate, fixed, hpa-calls, hpa-utilisation, kpa or ray; repeatable. Default: all.",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=1000, help="Repetitions of each load.")]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE.csv", help="Your own calls: a time in each first cell."),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.01, max=1e5, help="Mean calls/s. Default: 100, or the trace's."),
]
Minutes = Annotated[
    float, typer.Option("--minutes", min=5, max=1440, help="How long a load lasts.")
]
ServiceTime = Annotated[
    str,
    typer.Option(
        "--service", metavar="FIXED+PER_ROW", help="Of an execution, in milliseconds: 160+40."
    ),
]
OfModel = Annotated[
    str,
    typer.Option(
        "--model", metavar="NAME", help="Instead of --service: as the gateway has learned it."
    ),
]
Batch = Annotated[int | None, typer.Option("--batch", min=1, max=1024, help="Largest batch: 8.")]
Within = Annotated[
    str, typer.Option("--objective", metavar="SLO", help="p99<2s; of the model, if it has one.")
]
ColdStart = Annotated[
    float, typer.Option("--cold-start", min=0, max=3600, help="Seconds until a replica is ready.")
]
Between = Annotated[str, typer.Option("--bounds", metavar="MIN..MAX", help="Numbers of replicas.")]
Every = Annotated[
    bool, typer.Option("--all-parameters", help="Each policy with others than its usual, too.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw late calls against cost.")
]


def simulate(
    load: Loads = None,
    policy: Policies = None,
    seeds: Seeds = 5,
    trace: TraceFile = None,
    rate: Rate = None,
    minutes: Minutes = 60.0,
    service: ServiceTime = "",
    model: OfModel = "",
    batch: Batch = None,
    objective: Within = "",
    cold_start: ColdStart = 60.0,
    bounds: Between = "1..60",
    every: Every = False,
    plot: Plot = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Play loads, or your own calls, against simulated replicas, with this policy and others.

    Each call is simulated: batches form, queues grow, replicas take their cold start. What is told
    is the share of late calls, and what replicas cost beside one who knows all calls beforehand.
    The same seeds give the same numbers. No gateway is needed, except with --model.

    Example: servegate hints simulate --load spikes --seeds 5

    Example: servegate hints simulate --trace calls.csv --service 12+3 --batch 16 --plot cost.svg
    """
    from serve.cli.hints.simulating import Wish, run, scene_of

    wish = Wish(
        loads=tuple(load or ()),
        policies=tuple(policy or ()),
        seeds=seeds,
        trace=trace,
        rate=rate,
        minutes=minutes,
        all_parameters=every,
        plot=plot,
    )
    scene = scene_of(
        service=service,
        model=model,
        batch=batch,
        objective=objective,
        cold_start=cold_start,
        bounds=bounds,
        admin=(admin_url, key_file),
    )
    run(wish, scene, json=json)
