"""A child that hangs is killed; one that starts slowly, or has just been replaced, is not."""

import asyncio
import os
import socket
from pathlib import Path

from serve.app.watching import BUSY_SILENCES, SILENCES, Heard, Watch, Watched, WatchedWorker
from serve.processes import Condition, State, cpu_seconds


class FakeChild:
    """Stands for `Supervised`: a condition, and whether the process answers."""

    def __init__(self) -> None:
        self.condition = Condition(State.RUNNING, pid=11)
        self.is_well = True

    async def answers(self) -> bool:
        return self.is_well


class Scene:
    def __init__(self) -> None:
        self.child = FakeChild()
        self.killed: list[int] = []
        watched = Watched(self.child, self.child.answers)  # type: ignore[arg-type]
        self.watch = Watch(
            {"one": watched}, lambda pid, number: self.killed.append(pid), lambda pid: 1.0
        )

    def look(self, times: int = 1) -> None:
        async def several() -> None:
            for _ in range(times):
                await self.watch.look()

        asyncio.run(several())


def test_a_child_that_no_longer_answers_is_killed_once() -> None:
    scene = Scene()
    scene.look()
    scene.child.is_well = False
    scene.look(SILENCES - 1)
    assert scene.killed == []
    scene.look()
    assert scene.killed == [11]
    scene.look(SILENCES)
    assert scene.killed == [11]


def test_a_child_that_has_not_yet_answered_is_given_time() -> None:
    scene = Scene()
    scene.child.is_well = False
    scene.look(10 * SILENCES)
    assert scene.killed == []


def test_an_answer_forgives_earlier_silences() -> None:
    scene = Scene()
    for well in (True, False, False, True, False, False):
        scene.child.is_well = well
        scene.look()
    assert scene.killed == []


def test_a_new_process_is_not_blamed_for_the_old_one() -> None:
    scene = Scene()
    scene.look()
    scene.child.is_well = False
    scene.look(SILENCES - 1)
    scene.child.condition = Condition(State.RUNNING, pid=12)
    scene.look(SILENCES)
    assert scene.killed == []


def test_a_child_that_is_not_running_is_not_asked() -> None:
    scene = Scene()
    scene.look()
    scene.child.is_well = False
    scene.child.condition = Condition(State.BACKING_OFF, pid=None)
    scene.look(10 * SILENCES)
    assert scene.killed == []


class FakeWorker:
    """Stands for a worker: the process that listens, if any, and whether it answers."""

    def __init__(self) -> None:
        self.heard = Heard(21, is_well=True)

    async def ask(self) -> Heard:
        return self.heard


class Workers:
    def __init__(self) -> None:
        self.worker = FakeWorker()
        self.killed: list[int] = []
        self.used = 1.0  # seconds of CPU time so far
        self.watch = Watch(
            {"worker-0": self.worker},
            lambda pid, number: self.killed.append(pid),
            lambda pid: self.used,
        )

    def look(self, *heard: Heard, busy: float = 0.0) -> None:
        """Look so often; it uses so many seconds of CPU time before each look."""

        async def several() -> None:
            for self.worker.heard in heard:
                self.used += busy
                await self.watch.look()

        asyncio.run(several())


WELL, SILENT = Heard(21, is_well=True), Heard(21)


def test_a_worker_that_no_longer_answers_is_killed() -> None:
    scene = Workers()
    scene.look(WELL, *[SILENT] * SILENCES)
    assert scene.killed == [21]


def test_a_worker_that_is_busy_is_not_killed_for_being_late() -> None:
    scene = Workers()
    scene.look(WELL, *[SILENT] * (BUSY_SILENCES - 1), busy=0.5)
    assert scene.killed == []
    scene.look(WELL, *[SILENT] * (BUSY_SILENCES - 1), busy=0.5)
    assert scene.killed == []


def test_a_worker_that_is_busy_for_ever_is_killed_at_last() -> None:
    scene = Workers()
    scene.look(WELL, *[SILENT] * BUSY_SILENCES, busy=0.5)
    assert scene.killed == [21]


def test_a_worker_that_was_busy_and_then_hangs_is_killed() -> None:
    scene = Workers()
    scene.look(WELL, *[SILENT] * SILENCES, busy=0.5)
    scene.look(*[SILENT] * (SILENCES - 1))
    assert scene.killed == []
    scene.look(SILENT)
    assert scene.killed == [21]


def test_the_kernel_says_how_much_cpu_time_a_process_has_used() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(100_000))
    assert before < cpu_seconds(os.getpid())
    assert cpu_seconds((1 << 22) - 1) == 0.0  # the kernel gives lower numbers first


def test_a_worker_whose_socket_nobody_listens_on_is_being_started() -> None:
    scene = Workers()
    scene.look(WELL, *[Heard()] * 10 * SILENCES)
    assert scene.killed == []


def test_a_worker_that_was_replaced_is_judged_only_once_it_has_answered() -> None:
    scene = Workers()
    scene.look(WELL, SILENT, SILENT, *[Heard(22)] * 10 * SILENCES)
    assert scene.killed == []
    scene.look(Heard(22, is_well=True), *[Heard(22)] * SILENCES)
    assert scene.killed == [22]


def test_a_worker_that_hangs_is_known_by_whom_the_kernel_names(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.sock"
    worker = WatchedWorker(path, patience=0.05)
    assert asyncio.run(worker.ask()) == Heard()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        assert asyncio.run(worker.ask()) == Heard()
        mute.listen()
        assert asyncio.run(worker.ask()) == Heard(os.getpid())
    assert asyncio.run(worker.ask()) == Heard()
