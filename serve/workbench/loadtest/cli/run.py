"""`servegate load run`: calls at intended times, and what users would have seen."""

from typing import Annotated

import typer

from serve.cli.options import AdminUrl, AsJson, GrpcUrl, KeyFile, Url
from serve.cli.panels import option
from serve.workbench.loadtest.cli import options
from serve.workbench.loadtest.cli.reports import shared


def run(
    context: typer.Context,
    model: options.Model,
    rate: Annotated[
        float,
        option(
            options.LOAD,
            "RATE",
            "Calls per second, across all protocols.",
            "--rate",
            min=0,
            show_default=False,
        ),
    ] = 0.0,
    seconds: Annotated[
        str,
        option(
            options.LOAD,
            "DURATION",
            "Duration of the run, for example 30s or 5m (default: 60s, or the length of the "
            "trace).",
            "--for",
        ),
    ] = "",
    arrivals: Annotated[
        str,
        option(
            options.LOAD,
            "PROCESS",
            "Arrival process: poisson, constant, ramp:RATE..RATE, step:RATE,RATE,…, "
            "spike:xFACTOR@START+DURATION, diurnal:xPEAK_TO_TROUGH@PERIOD or "
            "trace:FILE.csv[*SPEED], for example ramp:10..200 or spike:x5@30s+10s. Append ',even' "
            "or ',poisson' to set the spacing of the calls.",
            "--arrivals",
        ),
    ] = "poisson",
    closed: Annotated[
        int,
        option(
            options.LOAD,
            "USERS",
            "Run a closed loop with this number of users, each of which waits for the response "
            "before its next call (default: open loop).",
            "--closed",
            min=0,
            show_default=False,
        ),
    ] = 0,
    think: Annotated[
        str,
        option(
            options.LOAD,
            "DURATION",
            "Pause of a closed-loop user between a response and the next call.",
            "--think",
        ),
    ] = "0s",
    protocol: options.Protocols = None,
    inputs: options.Inputs = None,
    batch: options.Batch = 0,
    expect: options.Expect = "",
    random_bodies: options.RandomBodies = 16,
    sequences: options.SequenceLength = 0,
    slo: options.Objective = "",
    find_max: Annotated[
        bool,
        option(options.LOAD, "", "Search for the highest rate that meets --slo.", "--find-max"),
    ] = False,
    most: Annotated[
        float,
        option(
            options.LOAD,
            "RATE",
            "Highest rate that --find-max tries, in calls per second (default: 100000).",
            "--most",
            min=0,
            show_default=False,
        ),
    ] = 0.0,
    workers: options.Workers = 1,
    listen: options.Listen = "",
    expect_workers: options.ExpectWorkers = 0,
    connections: options.Connections = 1000,
    timeout: options.Timeout = "30s",
    warm_up: options.WarmUp = "2s",
    seed: options.Seed = 0,
    url: Url = None,
    grpc_url: GrpcUrl = None,
    admin_url: AdminUrl = None,
    metrics_url: options.MetricsUrl = None,
    key_file: KeyFile = None,
    out: options.Folder = options.DEFAULT_FOLDER,
    name: options.Name = "",
    share: options.Share = False,
    no_observe: options.NoObserve = False,
    no_check: options.NoCheck = False,
    json: AsJson = False,
) -> None:
    """Run a load test, and write a report.

    Latency is measured from the scheduled start of each call, so stalls are included (no
    coordinated omission).

    Example: servegate load run --model digits --rate 200 --for 60s --slo 'p99<20ms,errors<0.1%'

    Example: servegate load run --model digits --rate 50 --protocol http-binary,grpc=2 --batch 8

    Example: servegate load run --model digits --find-max --slo 'p99<20ms'
    """
    from functools import partial

    from serve.cli.asked import parse_asked
    from serve.cli.endings import report_end
    from serve.cli.talk import talk
    from serve.core.texts import parse_seconds
    from serve.workbench.loadtest.cli.command import command_of
    from serve.workbench.loadtest.cli.inputs import InputRequest
    from serve.workbench.loadtest.cli.interrupts import STOPPED
    from serve.workbench.loadtest.cli.lanes import Calls, ends_of
    from serve.workbench.loadtest.cli.report_folder import ReportShelf
    from serve.workbench.loadtest.cli.search import search
    from serve.workbench.loadtest.cli.single_run import (
        CallPace,
        GeneratorOptions,
        Running,
        conclude,
        measure,
    )
    from serve.workbench.loadtest.runner import require_locust

    talking = talk(json=json)
    with report_end(talking, lambda: STOPPED):
        require_locust()
        ends = ends_of(url, grpc_url, admin_url, metrics_url, key_file)
        calls = Calls(
            parse_asked(model),
            ends,
            tuple(protocol or ()),
            InputRequest(tuple(inputs or ("random",)), batch, expect, random_bodies, seed),
            sequence=sequences,
            timeout=parse_seconds(timeout),
            checked=not no_check,
        )
        generator = GeneratorOptions(
            workers=workers,
            listen=listen,
            expect=expect_workers,
            most=connections,
            timeout=parse_seconds(timeout),
            warm_up=parse_seconds(warm_up),
            seed=seed,
        )
        length = parse_seconds(seconds) if seconds else 0.0
        pace = CallPace(rate, length, arrivals, closed, parse_seconds(think))
        running = Running(talking, calls, generator, observe=not no_observe)
        kind = "find-max" if find_max else "run"
        shelf = ReportShelf.begin(
            out,
            name,
            asked=model,
            scenario=kind,
            title=f"{model}: {f'highest rate with {slo}' if find_max else pace}",
            command=command_of(context, **ends.urls),
        )
        if find_max:
            report, is_stopped = search(running, pace, shelf, slo, most)
        else:
            report, is_stopped = measure(running, pace, shelf, slo)
        sharing = partial(shared, admin=ends.admin, key_file=key_file)
        ending = conclude(
            talking, shelf, report, is_stopped=is_stopped, share=sharing if share else None
        )
    if ending is not None:
        raise ending
