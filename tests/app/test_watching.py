"""A process that hangs is killed; one that starts slowly, or has just been replaced, is not."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from serve.app.watchdog import (
    BUSY_SILENCES,
    SILENCES,
    Watchdog,
    WatchdogAnswer,
    Watched,
    WatchedWorker,
)
from serve.processes import ProcessCondition, SupervisedState, cpu_seconds

WELL, SILENT, ABSENT = WatchdogAnswer(21, is_well=True), WatchdogAnswer(21), WatchdogAnswer()
NEW, NEW_WELL = WatchdogAnswer(22), WatchdogAnswer(22, is_well=True)


class Scene:
    """A watch over one process: what each look hears of it, and who was killed."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.used = 1.0  # seconds of CPU time so far
        self._watch = Watchdog(
            {"one": self}, lambda pid, number: self.killed.append(pid), lambda pid: self.used
        )

    async def ask(self) -> WatchdogAnswer:
        return self._heard

    def look(self, *heard: WatchdogAnswer, busy: float = 0.0) -> list[int]:
        """Look so often; it uses so many seconds of CPU time before each look."""

        async def several() -> None:
            for self._heard in heard:
                self.used += busy
                await self._watch.look()

        asyncio.run(several())
        return self.killed


def test_a_process_that_no_longer_answers_is_killed_once() -> None:
    scene = Scene()
    assert scene.look(WELL, *[SILENT] * (SILENCES - 1)) == []
    assert scene.look(SILENT) == [21]
    assert scene.look(*[SILENT] * SILENCES) == [21]


@pytest.mark.parametrize(
    "heard",
    [
        pytest.param([SILENT] * 10 * SILENCES, id="it has not answered yet"),
        pytest.param([WELL, SILENT, SILENT, WELL, SILENT, SILENT], id="it has answered since"),
        pytest.param([WELL, *[ABSENT] * 10 * SILENCES], id="it is being started again"),
        pytest.param([WELL, SILENT, SILENT, *[NEW] * 10 * SILENCES], id="it was replaced"),
    ],
)
def test_a_process_that_starts_or_has_answered_meanwhile_is_left_alone(
    heard: list[WatchdogAnswer],
) -> None:
    assert Scene().look(*heard) == []


def test_a_new_process_is_judged_once_it_has_answered() -> None:
    assert Scene().look(WELL, SILENT, SILENT, NEW, NEW_WELL, *[NEW] * SILENCES) == [22]


def test_a_process_that_is_busy_is_killed_only_after_a_long_silence() -> None:
    scene = Scene()
    for _ in range(2):
        assert scene.look(WELL, *[SILENT] * (BUSY_SILENCES - 1), busy=0.5) == []
    assert scene.look(SILENT, busy=0.5) == [21]


def test_a_process_that_was_busy_and_then_hangs_is_killed() -> None:
    scene = Scene()
    scene.look(WELL, *[SILENT] * SILENCES, busy=0.5)
    assert scene.look(*[SILENT] * (SILENCES - 1)) == []
    assert scene.look(SILENT) == [21]


def test_the_kernel_says_how_much_cpu_time_a_process_has_used() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(100_000))
    assert before < cpu_seconds(os.getpid())
    assert cpu_seconds((1 << 22) - 1) == 0.0  # the kernel gives lower numbers first


class FakeChild:
    """Stands for `Supervised`: a condition, which changes with the next answer if `then` is set."""

    def __init__(self, condition: ProcessCondition, then: ProcessCondition | None = None) -> None:
        self.condition = condition
        self._then = then or condition

    async def answers(self) -> bool:
        self.condition = self._then
        return True


def test_a_child_is_heard_while_it_runs_and_was_not_replaced_meanwhile() -> None:
    runs, next_one = (
        ProcessCondition(SupervisedState.RUNNING, pid=21),
        ProcessCondition(SupervisedState.RUNNING, pid=22),
    )
    waits = ProcessCondition(SupervisedState.BACKING_OFF, pid=None)
    for child, heard in (
        (FakeChild(runs), WELL),
        (FakeChild(waits), ABSENT),
        (FakeChild(runs, then=next_one), ABSENT),
    ):
        assert asyncio.run(Watched(child, child.answers).ask()) == heard  # type: ignore[arg-type]


def test_a_worker_that_hangs_is_known_by_whom_the_kernel_names(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.sock"
    worker = WatchedWorker(path, patience=0.05)
    assert asyncio.run(worker.ask()) == ABSENT
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        assert asyncio.run(worker.ask()) == ABSENT
        mute.listen()
        assert asyncio.run(worker.ask()) == WatchdogAnswer(os.getpid())
    assert asyncio.run(worker.ask()) == ABSENT
