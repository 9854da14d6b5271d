"""`servegate load scenario | scenarios`: ready load tests, each from one command."""

from functools import partial
from typing import Annotated

import typer

from serve.cli.backup import Yes, require_yes
from serve.cli.options import AdminUrl, AsJson, GrpcUrl, KeyFile, Url
from serve.cli.output import as_json, table
from serve.cli.panels import option
from serve.workbench.loadtest.cli import options
from serve.workbench.loadtest.cli.reports import shared


def list_scenarios(json: AsJson = False) -> None:
    """List the load test scenarios.

    Example: servegate load scenarios
    """
    from serve.workbench.loadtest.scenarios.catalogue import SCENARIOS

    if json:
        pages = [
            {"name": one.name, "summary": one.summary, "changes": one.changes}
            for one in SCENARIOS.values()
        ]
        as_json(pages)
        return
    rows = [(one.name, one.summary, one.changes or "nothing") for one in SCENARIOS.values()]
    table(("NAME", "DESCRIPTION", "CHANGES"), rows)


def run_scenario(
    context: typer.Context,
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the scenario; list them with `servegate load scenarios`."
        ),
    ],
    model: options.Model,
    rate: Annotated[
        float,
        option(
            options.LOAD,
            "RATE",
            "Calls per second (default: defined by the scenario).",
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
            "Duration, for example 30s or 5m (default: defined by the scenario).",
            "--for",
        ),
    ] = "",
    protocol: options.Protocols = None,
    inputs: options.Inputs = None,
    batch: options.Batch = 0,
    expect: options.Expect = "",
    random_bodies: options.RandomBodies = 16,
    slo: options.Objective = "",
    kill_command: Annotated[
        str,
        option(
            options.LOAD,
            "COMMAND",
            "Shell command that kills a replica, for scenarios that do so; needed if the replicas "
            "run on other machines.",
            "--kill-command",
        ),
    ] = "",
    workers: options.Workers = 1,
    connections: options.Connections = 1000,
    timeout: options.Timeout = "30s",
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
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Run a load test scenario. Exits with status 7 if the model fails it.

    Example: servegate load scenario smoke --model digits

    Example: servegate load scenario split --model digits --rate 200 --yes
    """
    from serve.cli.asked import parse_asked
    from serve.cli.client import connect
    from serve.cli.endings import report_end
    from serve.cli.talk import talk
    from serve.core.texts import parse_seconds
    from serve.workbench.loadtest.cli.command import command_of
    from serve.workbench.loadtest.cli.inputs import InputRequest
    from serve.workbench.loadtest.cli.interrupts import STOPPED, Stopping
    from serve.workbench.loadtest.cli.lanes import Calls, ends_of
    from serve.workbench.loadtest.cli.report_folder import ReportShelf
    from serve.workbench.loadtest.cli.single_run import GeneratorOptions, Running, conclude
    from serve.workbench.loadtest.cli.stage import CommandStage, play
    from serve.workbench.loadtest.reports.objectives import parse_objective
    from serve.workbench.loadtest.runner import require_locust
    from serve.workbench.loadtest.scenarios.catalogue import scenario_of

    talking = talk(json=json)
    with report_end(talking, lambda: STOPPED):
        require_locust()
        chosen, asked = scenario_of(scenario), parse_asked(model)
        if slo:
            parse_objective(slo)
        if chosen.changes and not yes:
            require_yes(f"{chosen.name}: {chosen.changes}")
        ends = ends_of(url, grpc_url, admin_url, metrics_url, key_file)
        if chosen.changes:
            connect(ends.admin, key_file).require_own()
        wish = InputRequest(tuple(inputs or ("random",)), batch, expect, random_bodies, seed)
        patience = parse_seconds(timeout)
        calls = Calls(asked, ends, tuple(protocol or ()), wish, timeout=patience)
        generator = GeneratorOptions(workers=workers, most=connections, timeout=patience, seed=seed)
        stage = CommandStage(
            Running(talking, calls, generator, observe=not no_observe),
            Stopping(),
            ends.target(asked),
            seconds=parse_seconds(seconds) or None if seconds else None,
            rate=rate or None,
            objective=slo,
            kill_command=kill_command,
        )
        shelf = ReportShelf.begin(
            out,
            name,
            asked=model,
            scenario=chosen.name,
            title=chosen.summary,
            command=command_of(context, **ends.urls),
        )
        report, is_stopped = play(chosen, stage, shelf)
        sharing = partial(shared, admin=ends.admin, key_file=key_file)
        ending = conclude(
            talking, shelf, report, is_stopped=is_stopped, share=sharing if share else None
        )
    if ending is not None:
        raise ending
