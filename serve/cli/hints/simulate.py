"""`servegate hints simulate`: what this policy would cost, and others, under a load or a trace."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile

_LOAD, _POLICIES, _REPLICAS = "Load", "Policies", "Replicas"  # groups in the help

Loads = Annotated[
    list[str] | None,
    typer.Option(
        "--load",
        metavar="NAME",
        help="Named load: steady, diurnal, ramp, step, spikes, mmpp, on-off, gamma-1, gamma-2 or "
        "gamma-4 (repeatable; default: all).",
        rich_help_panel=_LOAD,
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Policy: servegate, fixed, hpa-calls, hpa-utilisation, kpa or ray (repeatable; "
        "default: all).",
        rich_help_panel=_POLICIES,
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        max=1000,
        metavar="N",
        help="Number of repetitions of each load.",
        rich_help_panel=_LOAD,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE.csv",
        help="Arrival times of your own calls, in the first column.",
        rich_help_panel=_LOAD,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.01,
        max=1e5,
        metavar="NUMBER",
        help="Mean calls per second (default: 100, or the rate of the trace).",
        rich_help_panel=_LOAD,
    ),
]
Minutes = Annotated[
    float,
    typer.Option(
        "--minutes",
        min=5,
        max=1440,
        metavar="NUMBER",
        help="Duration of a named load in minutes.",
        rich_help_panel=_LOAD,
    ),
]
ServiceTime = Annotated[
    str,
    typer.Option(
        "--service",
        metavar="FIXED+PER_ROW",
        help="Duration of an execution in milliseconds (default: 160+40).",
        rich_help_panel=_REPLICAS,
    ),
]
OfModel = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Use the durations that the gateway has measured for this model.",
        rich_help_panel=_REPLICAS,
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        max=1024,
        metavar="N",
        help="Largest batch (default: 8, or that of --model).",
        rich_help_panel=_REPLICAS,
    ),
]
Within = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="OBJECTIVE",
        help="Objective (default: p99<2s, or that of --model).",
        rich_help_panel=_REPLICAS,
    ),
]
ColdStart = Annotated[
    float,
    typer.Option(
        "--cold-start",
        min=0,
        max=3600,
        metavar="SECONDS",
        help="Time until a new replica is ready.",
        rich_help_panel=_REPLICAS,
    ),
]
Between = Annotated[
    str,
    typer.Option(
        "--bounds",
        metavar="MIN..MAX",
        help="Minimum and maximum number of replicas.",
        rich_help_panel=_REPLICAS,
    ),
]
Every = Annotated[
    bool,
    typer.Option(
        "--all-parameters",
        help="Run each policy with several parameters, not only its usual one.",
        rich_help_panel=_POLICIES,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg", help="Write a chart of late calls against cost."),
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
    """Compare this scaling policy with others in a simulation.

    Runs named loads, or a trace of your own calls, on simulated replicas. Simulates each call, with
    batches, queues and cold starts. Prints the share of late calls, and the replica-hours compared
    with an oracle that knows all calls in advance. The same seeds give the same results. Needs no
    gateway, except with --model.

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
