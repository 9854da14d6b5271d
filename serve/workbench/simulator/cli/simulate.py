"""`servegate hints simulate`: what this policy would cost, and others, under a load or a trace."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.panels import option

_LOAD, _POLICIES, _REPLICAS = "Load", "Policies", "Replicas"  # groups in the help

Loads = Annotated[
    list[str] | None,
    option(
        _LOAD,
        "NAME",
        "Load profile: steady, diurnal, ramp, step, spikes, mmpp, on-off, gamma-1, gamma-2 or "
        "gamma-4 (repeatable; default: all).",
        "--load",
    ),
]
Policies = Annotated[
    list[str] | None,
    option(
        _POLICIES,
        "NAME",
        "Policy: servegate, fixed, hpa-calls, hpa-utilisation, kpa or ray (repeatable; "
        "default: all).",
        "--policy",
    ),
]
Seeds = Annotated[
    int,
    option(
        _LOAD,
        "N",
        "Number of runs of each load, each with its own random seed.",
        "--seeds",
        min=1,
        max=1000,
    ),
]
TraceFile = Annotated[
    Path | None,
    option(_LOAD, "FILE.csv", "Arrival times of your own calls, in the first column.", "--trace"),
]
Rate = Annotated[
    float | None,
    option(
        _LOAD,
        "NUMBER",
        "Mean calls per second (default: 100, or the rate of the trace).",
        "--rate",
        min=0.01,
        max=1e5,
    ),
]
Minutes = Annotated[
    float,
    option(_LOAD, "NUMBER", "Duration of a load profile in minutes.", "--minutes", min=5, max=1440),
]
ServiceTime = Annotated[
    str,
    option(
        _REPLICAS,
        "FIXED+PER_ROW",
        "Execution time in milliseconds: a fixed part plus a part per row (default: 160+40).",
        "--service",
    ),
]
OfModel = Annotated[
    str,
    option(
        _REPLICAS,
        "NAME",
        "Use the durations that the gateway has measured for this model.",
        "--model",
    ),
]
Batch = Annotated[
    int | None,
    option(
        _REPLICAS,
        "N",
        "Maximum batch size in rows (default: 8, or that of --model).",
        "--batch",
        min=1,
        max=1024,
    ),
]
Within = Annotated[
    str,
    option(
        _REPLICAS, "OBJECTIVE", "Objective (default: p99<2s, or that of --model).", "--objective"
    ),
]
ColdStart = Annotated[
    float,
    option(
        _REPLICAS, "SECONDS", "Time until a new replica is ready.", "--cold-start", min=0, max=3600
    ),
]
Between = Annotated[
    str, option(_REPLICAS, "MIN..MAX", "Minimum and maximum number of replicas.", "--bounds")
]
Every = Annotated[
    bool,
    option(
        _POLICIES,
        "",
        "Run each policy with several sets of parameters, not only with its default set.",
        "--all-parameters",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.svg",
        help="Write a chart of calls that miss the objective against cost.",
    ),
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
    """Simulate the scaling policy, and compare it with others.

    Runs built-in load profiles, or a trace of your own calls, on simulated replicas. Simulates each
    call, with batches, queues and cold starts. Prints the fraction of calls that miss the
    objective, and the replica-hours compared with an oracle that knows all calls in advance.
    Results are reproducible. Needs no gateway, except with --model.

    Example: servegate hints simulate --load spikes --seeds 5

    Example: servegate hints simulate --trace calls.csv --service 12+3 --batch 16 --plot cost.svg
    """
    from serve.workbench.simulator.cli.simulation import SimulationRequest, run, scene_of

    wish = SimulationRequest(
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
