"""The child of a load test, run by its parent against a small server."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from living import ends
from load_plans import PAYLOAD, generators, plan_of
from model_server import ModelServer

from serve.core.errors import CannotStart, Invalid
from serve.load.plan import Payload, Plan, Protocol
from serve.load.recording import RIGHT, Record, Window
from serve.load.running import MOST_SENT, run


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


class Told:
    """What a run has told, in order."""

    def __init__(self, on_begin: Callable[[], None] = lambda: None) -> None:
        self.events: list[str] = []
        self.problems: list[str] = []
        self._on_begin = on_begin

    def run(self, plan: Plan, **options: object) -> Record:
        return asyncio.run(self.follow(plan, **options))

    async def follow(self, plan: Plan, **options: object) -> Record:
        return await run(
            plan,
            on_begin=self.begin,
            on_window=self.window,
            on_problem=self.problems.append,
            **options,  # type: ignore[arg-type]
        )

    def begin(self) -> None:
        self.events.append("begin")
        self._on_begin()

    def window(self, _second: int, _window: Window) -> None:
        self.events.append("window")


def calls_of(record: Record) -> int:
    return sum(cell.calls for _, _, cell in record.cells())


def test_a_run_makes_every_call_that_was_meant(server: ModelServer) -> None:
    told = Told()
    record = told.run(plan_of(server.address, rate=50.0, seconds=2.0))
    assert calls_of(record) == len(server.calls) == 100
    assert {key.outcome for _, key, _ in record.cells()} == {RIGHT}
    assert set(record.windows) >= {0, 1}
    assert told.events[0] == "begin"
    assert told.events.count("begin") == 1
    assert told.problems == []
    assert generators() == []


def test_a_warm_up_is_called_and_not_recorded(server: ModelServer) -> None:
    record = Told().run(plan_of(server.address, rate=50.0, warm_up=1.0))
    assert calls_of(record) == 50
    assert len(server.calls) > 50


def test_one_window_may_be_longer_than_a_pipe_holds(server: ModelServer) -> None:
    lanes = [replace(plan_of(server.address).lanes[0], name=str(number)) for number in range(200)]
    plan = replace(plan_of(server.address, rate=400.0), lanes=tuple(lanes))
    assert calls_of(Told().run(plan)) == 400


def test_a_run_can_be_ended_early(server: ModelServer) -> None:
    stop = asyncio.Event()
    record = Told(stop.set).run(plan_of(server.address, seconds=600.0), stop=stop)
    assert calls_of(record) < 60_000
    assert generators() == []


def test_a_cancelled_run_leaves_no_process(server: ModelServer) -> None:
    plan = plan_of(server.address, seconds=600.0)

    async def cancel_when_begun() -> list[int]:
        begun = asyncio.Event()
        task = asyncio.create_task(Told(begun.set).follow(plan, workers=2))
        await begun.wait()
        pids = generators()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids

    pids = asyncio.run(cancel_when_begun())
    assert len(pids) == 3
    assert all(map(ends, pids))


def test_a_child_that_is_killed_is_told_with_its_signal(server: ModelServer) -> None:
    def kill() -> None:
        os.kill(generators()[0], signal.SIGKILL)

    with pytest.raises(CannotStart, match=r"died before its end: .*SIGKILL"):
        Told(kill).run(plan_of(server.address, seconds=600.0))


def test_what_goes_wrong_on_this_side_ends_the_run(server: ModelServer) -> None:
    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        Told(fail).run(plan_of(server.address, seconds=600.0))
    assert generators() == []


def test_what_the_child_refuses_is_refused_with_its_words(server: ModelServer) -> None:
    plan = plan_of(server.address)
    headers = (("not a header", "x"),)
    lane = replace(plan.lanes[0], protocol=Protocol.GRPC, headers=headers)
    with pytest.raises(Invalid, match="not a header"):
        Told().run(replace(plan, lanes=(lane,)))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"workers": 0}, "0 workers"),
        ({"listen": "0.0.0.0:5557"}, "a number to wait for|an address to come to"),
        ({"expect": 2}, "an address to come to"),
        ({"listen": "here", "expect": 2}, "HOST:PORT"),
    ],
)
def test_a_run_that_cannot_be_is_refused(options: dict[str, object], word: str) -> None:
    with pytest.raises(Invalid, match=word):
        Told().run(plan_of("127.0.0.1:1"), **options)


def test_bodies_that_are_too_much_are_not_sent_to_workers() -> None:
    plan = plan_of("127.0.0.1:1")
    payload = Payload(bytes(MOST_SENT + 1), PAYLOAD.headers)
    lane = replace(plan.lanes[0], payloads=(payload,))
    with pytest.raises(Invalid, match="MiB of request bodies"):
        Told().run(replace(plan, lanes=(lane,)), workers=2)
