"""Contracts in force: what is asked of a version, what is said of its answers, and when."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from builders import replica

from serve.control.added_cases import CONTRACT, Added
from serve.control.artifacts.storage import Storage
from serve.control.decisions import Decisions
from serve.control.reconciling.contracts import CACHE_BYTES, SECOND_LOOK, Contracts
from serve.control.storing.store import Entry
from serve.control.versions import Version
from serve.core.errors import DeadlineExceeded, NotFound, TritonFailed, Unavailable
from serve.core.versions import File, Manifest, Provenance, State
from serve.tensors.contracts import Case, Contract, Tolerance, write_contract

A = replica("a")
ONE = np.ones((1, 2), np.float32)
RIGHT, WRONG = {"y": ONE}, {"y": 2 * ONE}
GONE, LATE, REFUSED = Unavailable("gone"), DeadlineExceeded("late"), TritonFailed("no such model")
SAYS_WRONG = "golden case 0 ('first'): output 'y'[0,0] is 2, expected 1 (off by 1, allowed 0.0011)"
CONFIG = """
name: "m" backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ -1, 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
"""
BATCHING = "sequence_batching { %s }"
WITHOUT = Provenance("somebody", 0.0)


def version(number: int = 1, *, config: str = CONFIG, **more: Any) -> Version:
    more = {"physical": "m--0123", "has_contract": True} | more
    return Version("m", number, State.PUBLISHED, "", WITHOUT, config=config, **more)


class Model:
    """Stands for `predict`: answers by a script, whose last line is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers) or [RIGHT]
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, replica: Any, name: str, number: int, inputs: Any, **more: Any) -> Any:
        self.asked.append({"replica": replica.name, "of": (name, number), "x": inputs, **more})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Script:
    """A clock without time; when its steps are used up, it cancels whoever sleeps."""

    def __init__(self, *steps: Callable[[], None]) -> None:
        self.slept: list[float] = []
        self._steps = list(steps)

    def now(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        if seconds != SECOND_LOOK:
            if not self._steps:
                raise asyncio.CancelledError
            self._steps.pop(0)()
        self.slept.append(seconds)


def nothing() -> None:
    pass


class Scene:
    """Contracts over a real storage in which versions are published."""

    def __init__(self, folder: Path, *answers: Any, script: Script | None = None) -> None:
        self.storage = Storage.of(str(folder))
        self.model = Model(*answers)
        self.decisions = Decisions()
        self.script = script or Script()
        self.contracts = self.make()

    def make(self, cache_bytes: int = CACHE_BYTES) -> Contracts:
        return Contracts(
            self.storage,
            decisions=lambda: self.decisions,
            ask=self.model,
            clock=self.script,
            draw=lambda: 0.5,
            cache_bytes=cache_bytes,
        )

    async def publish(self, *cases: Case, number: int = 1) -> None:
        contents = {f"{number}/model.onnx": b"model", **write_contract(cases or [case()])}
        files = [File(path, *await self.storage.add_bytes(b)) for path, b in contents.items()]
        manifest = Manifest("m", number, "m--0123", "", "", tuple(sorted(files)), WITHOUT)
        await self.storage.put_manifest(manifest)

    def holds(self, *versions: Version) -> None:
        entries = {("version", one.key): Entry(one.to_body(), 1) for one in versions}
        self.decisions = Decisions(MappingProxyType(entries))


def case(name: str = "first", **more: Any) -> Case:
    return Case({"x": ONE}, {"y": ONE}, name, **more)


def play(work: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(bounded())


def verify(scene: Scene, asked: Version | None = None) -> str:
    async def main() -> str:
        await scene.publish()
        return await scene.contracts.verify(A, asked or version())

    return play(main())


def test_right_answers_pass_and_are_asked_for_under_the_physical_name(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert verify(scene) == ""
    (asked,) = scene.model.asked
    assert (asked["replica"], asked["of"]) == ("a", ("m--0123", 1))
    assert asked["parameters"] == {}
    assert asked["x"]["x"].tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (WRONG, SAYS_WRONG),
        ({}, "golden case 0 ('first'): output 'y' is missing"),
        (REFUSED, "golden case 0 ('first'): no such model"),
        (LATE, "golden case 0 ('first'): late"),
    ],
)
def test_an_answer_that_is_wrong_late_or_an_error_is_told(
    tmp_path: Path, answer: Any, says: str
) -> None:
    assert verify(Scene(tmp_path, answer)) == says


def test_a_replica_that_is_not_reached_says_nothing_about_a_version(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        verify(Scene(tmp_path, GONE))


def test_a_version_without_a_contract_is_right_and_is_not_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert verify(scene, version(has_contract=False)) == ""
    assert scene.model.asked == []


def test_the_first_wrong_case_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path, RIGHT, WRONG)
    contract = Contract((case(), Case({"x": ONE}, {"y": ONE}), case("third")))
    why = play(scene.contracts.judge(A, version(), contract))
    assert why.startswith("golden case 1: output 'y'[0,0] is 2, expected 1")


def test_a_contract_is_read_once(tmp_path: Path) -> None:
    async def main() -> None:
        scene = Scene(tmp_path)
        await scene.publish()
        await scene.contracts.verify(A, version())
        await scene.storage.remove_manifest("m", 1)
        assert await scene.contracts.verify(A, version()) == ""

    play(main())


def test_the_least_recently_used_contracts_leave_memory(tmp_path: Path) -> None:
    async def main() -> None:
        scene = Scene(tmp_path)
        contracts = scene.make(2 * case().size)
        for number in (1, 2, 3):
            await scene.publish(number=number)
        for number in (1, 2, 1, 3):
            await contracts.verify(A, version(number))
        for number in (1, 2, 3):
            await scene.storage.remove_manifest("m", number)
        assert await contracts.verify(A, version(1)) == ""
        assert await contracts.verify(A, version(3)) == ""
        with pytest.raises(NotFound):
            await contracts.verify(A, version(2))

    play(main())


def test_each_case_of_a_sequence_model_is_a_sequence_of_its_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    verify(scene, version(config=CONFIG + BATCHING % "direct { }"))
    number = 1 + (1 << 51)
    assert scene.model.asked[0]["parameters"] == {
        "sequence_id": number,
        "sequence_start": True,
        "sequence_end": True,
    }
    corrid = """control_input { name: "id"
        control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }"""
    verify(scene, version(config=CONFIG + BATCHING % corrid))
    assert scene.model.asked[1]["parameters"]["sequence_id"] == f"servegate-{number}"


def test_an_ensemble_takes_sequences_when_a_part_of_it_does(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    part = version(4, physical="part", config=CONFIG + BATCHING % "direct { }")
    ensemble = 'platform: "ensemble" ensemble_scheduling { step { model_name: "part" %s } }'
    scene.holds(part)
    for number in (4, 5):
        verify(scene, version(config=ensemble % f"model_version: {number}"))
    assert [bool(asked["parameters"]) for asked in scene.model.asked] == [True, False]


# --- warming -------------------------------------------------------------------------------------


def warmed(folder: Path, asked: Version, *answers: Any) -> list[dict[str, Any]]:
    scene = Scene(folder, *answers)

    async def main() -> None:
        await scene.publish()
        await scene.contracts.warm(A, asked)

    play(main())
    return scene.model.asked


def test_a_version_is_warmed_with_the_inputs_of_its_contract(tmp_path: Path) -> None:
    (asked,) = warmed(tmp_path, version())
    assert asked["x"]["x"].tolist() == [[1, 1]]


def test_a_version_without_a_contract_is_warmed_with_zeros(tmp_path: Path) -> None:
    more = """
    input { name: "t" data_type: TYPE_STRING dims: [ 1 ] }
    input { name: "o" data_type: TYPE_INT64 dims: [ 1 ] optional: true }
    """
    (asked,) = warmed(tmp_path, version(config=CONFIG + more, has_contract=False))
    assert {name: (array.dtype, array.shape) for name, array in asked["x"].items()} == {
        "x": (np.float32, (1, 1, 2)),
        "t": (object, (1, 1)),
    }
    assert asked["x"]["t"].tolist() == [[b""]]
    assert asked["datatypes"] == {"x": "FP32", "t": "BYTES"}


def test_shapes_that_the_configuration_lacks_come_from_the_signature(tmp_path: Path) -> None:
    signature = {"inputs": [{"name": "x", "datatype": "BF16", "shape": [-1, 3]}]}
    config = 'backend: "onnxruntime" max_batch_size: 4'
    bare = version(config=config, has_contract=False, signature=signature)
    (asked,) = warmed(tmp_path, bare)
    assert asked["x"]["x"].shape == (1, 3)
    assert asked["datatypes"] == {"x": "BF16"}


def test_every_instance_is_warmed(tmp_path: Path) -> None:
    config = CONFIG + "instance_group { count: 2 } instance_group { gpus: [ 0, 1 ] }"
    assert len(warmed(tmp_path, version(config=config))) == 4


@pytest.mark.parametrize(
    "config",
    [
        CONFIG.replace("onnxruntime", "python"),
        CONFIG.replace("[ -1, 2 ]", "[ 100000000 ]"),
        CONFIG + BATCHING % "direct { }",
        'backend: "onnxruntime"',
    ],
)
def test_nothing_is_made_up_for_code_sequences_huge_or_unknown_inputs(
    tmp_path: Path, config: str
) -> None:
    assert warmed(tmp_path, version(config=config, has_contract=False)) == []


@pytest.mark.parametrize("answer", [GONE, REFUSED, LATE])
def test_a_warm_up_that_fails_is_nobodys_business(tmp_path: Path, answer: Exception) -> None:
    assert len(warmed(tmp_path, version(), answer)) == 1


# --- on a timer ----------------------------------------------------------------------------------


class Told:
    """What was reported; may fail as a store does."""

    def __init__(self, *, failures: int = 0) -> None:
        self.news: list[tuple[str, int, str]] = []
        self._failures = failures

    async def __call__(self, replica: str, version: Version, why: str) -> None:
        if self._failures:
            self._failures -= 1
            raise Unavailable("the store")
        self.news.append((replica, version.number, why))


def rounds(folder: Path, count: int, *answers: Any, told: Told | None = None, **more: Any) -> Any:
    """What is reported in so many rounds."""
    told = told or Told()
    targets = more.pop("targets", [(A, version())])
    scene = Scene(folder, *answers, script=more.pop("script", Script(*[nothing] * count)))

    async def main() -> None:
        await scene.publish()
        try:
            await scene.contracts.run(lambda: targets, told, 60.0)
        except asyncio.CancelledError:
            pass

    play(main())
    return told.news


def test_two_wrong_answers_in_a_row_are_reported_once_and_a_right_one_after_it(
    tmp_path: Path,
) -> None:
    news = rounds(tmp_path, 4, WRONG, WRONG, WRONG, RIGHT, RIGHT)
    assert news == [("a", 1, SAYS_WRONG), ("a", 1, "")]


def test_one_wrong_answer_alone_is_not_reported(tmp_path: Path) -> None:
    script = Script(nothing, nothing)
    assert rounds(tmp_path, 2, WRONG, RIGHT, script=script) == []
    assert script.slept == [60.0, SECOND_LOOK, 60.0]


def test_a_replica_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    assert rounds(tmp_path, 2, GONE) == []
    assert rounds(tmp_path, 2, WRONG, GONE, RIGHT) == []
    assert rounds(tmp_path, 3, WRONG, WRONG, GONE, WRONG) == [("a", 1, SAYS_WRONG)]


def test_a_report_that_is_not_taken_is_repeated(tmp_path: Path) -> None:
    assert rounds(tmp_path, 2, WRONG, told=Told(failures=1)) == [("a", 1, SAYS_WRONG)]


def test_versions_without_a_contract_are_not_asked(tmp_path: Path) -> None:
    assert rounds(tmp_path, 1, WRONG, targets=[(A, version(has_contract=False))]) == []


def test_what_cannot_be_read_hides_no_other_version(tmp_path: Path) -> None:
    targets = [(A, version(9)), (A, version())]
    assert rounds(tmp_path, 1, WRONG, targets=targets) == [("a", 1, SAYS_WRONG)]


def test_what_is_no_target_any_more_is_forgotten(tmp_path: Path) -> None:
    targets = [(A, version())]
    script = Script(nothing, targets.clear, lambda: targets.append((A, version())))
    news = rounds(tmp_path, 0, WRONG, WRONG, RIGHT, targets=targets, script=script)
    assert news == [("a", 1, SAYS_WRONG)]


def test_outputs_are_judged_by_the_tolerances_of_the_contract(tmp_path: Path) -> None:
    scene = Scene(tmp_path, WRONG)
    contract = Contract((case(tolerance=Tolerance(atol=2.0)),))
    assert play(scene.contracts.judge(A, version(), contract)) == ""


async def added(scene: Scene, *names: str) -> None:
    """Version 1 as it is, and golden cases that were added to it."""
    cases = []
    for name in names:
        contents = write_contract([case(name)])
        files = [File(path, *await scene.storage.add_bytes(b)) for path, b in contents.items()]
        cases.append(Added(name, name, "ada", 0.0, tuple(sorted(files))).to_body())
    entries = {**scene.decisions.entries, (CONTRACT, "m:1"): Entry({"cases": cases}, 2)}
    scene.decisions = Decisions(MappingProxyType(entries))


def test_cases_that_were_added_are_asked_after_those_that_came_with_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, RIGHT, WRONG)

    async def main() -> str:
        await scene.publish()
        await added(scene, "second")
        return await scene.contracts.verify(A, version())

    assert play(main()).startswith("golden case 1 ('second'): ")
    assert len(scene.model.asked) == 2


def test_a_version_without_a_contract_of_its_own_is_asked_what_was_added(tmp_path: Path) -> None:
    scene = Scene(tmp_path, WRONG)
    without = version(has_contract=False)

    async def main() -> list[str]:
        found = [await scene.contracts.verify(A, without)]
        await added(scene, "one")
        found.append(await scene.contracts.verify(A, without))
        await added(scene)
        return [*found, await scene.contracts.verify(A, without)]

    before, during, after = play(main())
    assert (before, after) == ("", "")
    assert during.startswith("golden case 0 ('one'): ")


def test_what_was_added_is_run_again_and_again(tmp_path: Path) -> None:
    without = version(has_contract=False)
    scene = Scene(tmp_path, WRONG, script=Script(nothing))
    told: list[str] = []

    async def report(name: str, one: Version, why: str) -> None:
        told.append(why)

    async def main() -> None:
        await added(scene, "one")
        await scene.contracts.run(lambda: [(A, without)], report, 10)

    with pytest.raises(asyncio.CancelledError):
        play(main())
    assert len(told) == 1
