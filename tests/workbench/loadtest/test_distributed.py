"""Runs in child processes: one, several of this machine, and those that come to a port."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import load_plans
import pytest
from living import ends
from load_plans import PAYLOAD, generators, plan_of
from model_server import ModelServer
from ports import free_ports

from serve.core.errors import CannotStart, Invalid
from serve.workbench.loadtest.plan import LaneProtocol, LoadPlan, Payload
from serve.workbench.loadtest.record import Record
from serve.workbench.loadtest.runner import MOST_SENT, run, serve_worker

WORKER = """
import sys
from serve.core.errors import CannotStart, Invalid
from serve.workbench.loadtest.runner import serve_worker
try:
    sys.exit(serve_worker(sys.argv[1], patience=60, between_runs=0.1))
except CannotStart as error:
    sys.exit(str(error))
"""

PARENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from living import ends
from load_plans import generators, plan_of
from serve.workbench.loadtest.runner import run
asyncio.run(run(
    plan_of(sys.argv[2], seconds=600.0),
    workers=2,
    on_begin=lambda: print(*generators(), flush=True),
    on_window=lambda second, window: None,
))
"""


def record_of(plan: LoadPlan, **options: object) -> tuple[Record, list[str]]:
    """What a run records, and its problems."""
    problems: list[str] = []
    heard = {"on_begin": lambda: None, "on_window": lambda *_: None, "on_problem": problems.append}
    record = asyncio.run(run(plan, **heard | options))  # type: ignore[arg-type]
    return record, problems


def calls_of(record: Record) -> int:
    return sum(cell.calls for _, _, cell in record.cells())


def workers() -> list[int]:
    """The workers among the processes of the run: all but the first, which leads them."""
    return sorted(generators())[1:]


def test_workers_together_make_the_calls_of_one(server: ModelServer) -> None:
    plan = plan_of(server.address, rate=60.0, seconds=2.0)
    seen: list[int] = []
    record, problems = record_of(plan, workers=2, on_begin=lambda: seen.extend(workers()))
    assert len(seen) == 2
    assert calls_of(record) == len(server.calls) == 120
    assert problems == []
    assert generators() == []


@pytest.mark.slow
def test_a_run_goes_on_without_a_worker_that_is_lost(server: ModelServer) -> None:
    def kill() -> None:
        os.kill(workers()[0], signal.SIGKILL)

    plan = plan_of(server.address, rate=60.0, seconds=4.0)
    record, problems = record_of(plan, workers=2, on_begin=kill)
    assert 120 <= calls_of(record) < 240
    assert [("was lost" in text, "1/2 of the calls" in text) for text in problems] == [(True, True)]


@pytest.mark.slow
def test_a_run_without_any_worker_left_has_no_result(server: ModelServer) -> None:
    def kill() -> None:
        for each in workers():
            os.kill(each, signal.SIGKILL)

    with pytest.raises(CannotStart, match="all load workers were lost"):
        record_of(plan_of(server.address, seconds=600.0), workers=2, on_begin=kill)
    assert generators() == []


@pytest.mark.slow
def test_all_processes_die_with_the_one_that_wanted_the_run(server: ModelServer) -> None:
    words = [sys.executable, "-c", PARENT, str(Path(load_plans.__file__).parent), server.address]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 3
    assert all(map(ends, pids))


@pytest.mark.slow
def test_workers_come_from_elsewhere_for_run_after_run(server: ModelServer) -> None:
    (port,) = free_ports(1)
    master = f"127.0.0.1:{port}"
    plan = plan_of(server.address, rate=40.0)
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, master], stderr=subprocess.PIPE, text=True
    ) as remote:
        first, _ = record_of(plan, listen=master, expect=1)
        _, said = remote.communicate()
    assert calls_of(first) == len(server.calls) == 40
    assert remote.returncode == 0
    assert "disconnected: the run has finished" in said


@pytest.mark.slow
def test_a_worker_that_finds_no_master_says_so() -> None:
    (port,) = free_ports(1)
    with pytest.raises(CannotStart, match="no load test responds"):
        serve_worker(f"127.0.0.1:{port}", patience=0.2)


@pytest.mark.slow
def test_one_window_may_be_longer_than_a_pipe_holds(server: ModelServer) -> None:
    lanes = [replace(plan_of(server.address).lanes[0], name=str(number)) for number in range(200)]
    plan = replace(plan_of(server.address, rate=400.0), lanes=tuple(lanes))
    assert calls_of(record_of(plan)[0]) == 400


@pytest.mark.slow
def test_a_child_that_is_killed_is_told_with_its_signal(server: ModelServer) -> None:
    def kill() -> None:
        os.kill(generators()[0], signal.SIGKILL)

    with pytest.raises(CannotStart, match=r"died before the end of the run: .*SIGKILL"):
        record_of(plan_of(server.address, seconds=600.0), on_begin=kill)


def test_what_the_child_refuses_is_refused_with_its_words(server: ModelServer) -> None:
    plan = plan_of(server.address)
    headers = (("not a header", "x"),)
    lane = replace(plan.lanes[0], protocol=LaneProtocol.GRPC, headers=headers)
    with pytest.raises(Invalid, match="not a header"):
        record_of(replace(plan, lanes=(lane,)))


def test_a_run_that_cannot_be_is_refused() -> None:
    plan = plan_of("127.0.0.1:1")
    large = Payload(bytes(MOST_SENT + 1), PAYLOAD.headers)
    too_large = replace(plan, lanes=(replace(plan.lanes[0], payloads=(large,)),))
    rows: list[tuple[LoadPlan, dict[str, object], str]] = [
        (plan, {"workers": 0}, "0 workers"),
        (plan, {"listen": "0.0.0.0:5557"}, "have to be used together"),
        (plan, {"expect": 2}, "have to be used together"),
        (plan, {"listen": "here", "expect": 2}, "HOST:PORT"),
        (too_large, {"workers": 2}, "MiB of request bodies"),
    ]
    for refused, options, words in rows:
        with pytest.raises(Invalid, match=words):
            record_of(refused, **options)
