"""Contracts in force: what is asked of a version, what is said of its answers, and when."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from builders import replica

from serve.control.added_cases import CONTRACT, Added
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.reconciliation.contracts import CACHE_BYTES, SECOND_LOOK, Contracts
from serve.control.storage.store import StoredEntry
from serve.control.versions import PublishedVersion
from serve.core.errors import DeadlineExceeded, NotFound, TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.core.versions import Manifest, Provenance, VersionFile, VersionState
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


def version(number: int = 1, *, config: str = CONFIG, **more: Any) -> PublishedVersion:
    more = {"physical": "m--0123", "has_contract": True} | more
    return PublishedVersion("m", number, VersionState.PUBLISHED, "", WITHOUT, config=config, **more)


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
        self.storage = ArtifactStorage.of(str(folder))
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
        manifest = Manifest("m", number, "m--0123", "", "", await self._kept(contents), WITHOUT)
        await self.storage.put_manifest(manifest)

    async def _kept(self, contents: Mapping[str, bytes]) -> tuple[VersionFile, ...]:
        files = [
            VersionFile(path, *await self.storage.add_bytes(b)) for path, b in contents.items()
        ]
        return tuple(sorted(files))

    async def add(self, *names: str) -> None:
        """Version 1 as it is, and these golden cases that were added to it."""
        added = [
            Added(name, name, "ada", 0.0, await self._kept(write_contract([case(name)])))
            for name in names
        ]
        body = {"cases": [one.to_body() for one in added]}
        entries = {**self.decisions.entries, (CONTRACT, "m:1"): StoredEntry(body, 2)}
        self.decisions = Decisions(MappingProxyType(entries))

    def holds(self, *versions: PublishedVersion) -> None:
        entries = {("version", one.key): StoredEntry(one.to_body(), 1) for one in versions}
        self.decisions = Decisions(MappingProxyType(entries))

    async def verify(self, asked: PublishedVersion | None = None) -> str:
        async with asyncio.timeout(20):
            await self.publish()
            return await self.contracts.verify(A, asked or version())


def case(name: str = "first", **more: Any) -> Case:
    return Case({"x": ONE}, {"y": ONE}, name, **more)


async def test_right_answers_pass_and_are_asked_for_under_the_physical_name(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert await scene.verify() == ""
    (asked,) = scene.model.asked
    assert (asked["replica"], asked["of"]) == ("a", ("m--0123", 1))
    assert asked["parameters"] == {}
    assert asked["x"]["x"].tolist() == [[1, 1]]
    assert await scene.verify(version(has_contract=False)) == ""
    assert len(scene.model.asked) == 1  # a version without a contract is not asked


async def test_an_answer_that_is_no_right_one_is_told(tmp_path: Path) -> None:
    for answer, says in (
        (WRONG, SAYS_WRONG),
        ({}, "golden case 0 ('first'): output 'y' is missing"),
        (REFUSED, "golden case 0 ('first'): no such model"),
        (LATE, "golden case 0 ('first'): late"),
    ):
        assert await Scene(tmp_path, answer).verify() == says
    with pytest.raises(Unavailable):  # a replica that is not reached says nothing about it
        await Scene(tmp_path, GONE).verify()


async def test_the_first_wrong_case_by_the_contracts_tolerances_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path, RIGHT, WRONG)
    cases = case(), Case({"x": ONE}, {"y": ONE}), case("third")
    why = await scene.contracts.judge(A, version(), Contract(cases))
    assert why.startswith("golden case 1: output 'y'[0,0] is 2, expected 1")
    tolerant = Contract((case(tolerance=Tolerance(atol=2.0)),))
    assert await scene.contracts.judge(A, version(), tolerant) == ""


async def test_a_contract_is_read_once_and_the_least_used_leave_memory(tmp_path: Path) -> None:
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


async def test_each_case_of_a_sequence_model_is_a_sequence_of_its_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.verify(version(config=CONFIG + BATCHING % "direct { }"))
    number = 1 + (1 << 51)
    whole = {"sequence_start": True, "sequence_end": True}
    assert scene.model.asked[0]["parameters"] == {"sequence_id": number, **whole}
    corrid = """control_input { name: "id"
        control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }"""
    await scene.verify(version(config=CONFIG + BATCHING % corrid))
    assert scene.model.asked[1]["parameters"]["sequence_id"] == f"servegate-{number}"


async def test_an_ensemble_takes_sequences_when_a_part_of_it_does(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    part = version(4, physical="part", config=CONFIG + BATCHING % "direct { }")
    ensemble = 'platform: "ensemble" ensemble_scheduling { step { model_name: "part" %s } }'
    scene.holds(part)
    for number in (4, 5):
        await scene.verify(version(config=ensemble % f"model_version: {number}"))
    assert [bool(asked["parameters"]) for asked in scene.model.asked] == [True, False]


async def test_added_cases_are_asked_after_those_that_came_with_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, RIGHT, WRONG)
    await scene.add("second")
    assert (await scene.verify()).startswith("golden case 1 ('second'): ")
    assert len(scene.model.asked) == 2


async def test_a_version_without_its_own_contract_is_asked_what_was_added(tmp_path: Path) -> None:
    scene, without = Scene(tmp_path, WRONG), version(has_contract=False)
    assert await scene.contracts.verify(A, without) == ""
    await scene.add("one")
    assert (await scene.contracts.verify(A, without)).startswith("golden case 0 ('one'): ")
    await scene.add()
    assert await scene.contracts.verify(A, without) == ""


# --- warming -------------------------------------------------------------------------------------


async def warmed(folder: Path, asked: PublishedVersion, *answers: Any) -> list[dict[str, Any]]:
    scene = Scene(folder, *answers)
    await scene.publish()
    await scene.contracts.warm(A, asked)
    return scene.model.asked


async def test_each_instance_is_warmed_with_the_contracts_inputs_even_if_that_fails(
    tmp_path: Path,
) -> None:
    for answer in (RIGHT, GONE, REFUSED, LATE):
        (asked,) = await warmed(tmp_path, version(), answer)
        assert asked["x"]["x"].tolist() == [[1, 1]]
    config = CONFIG + "instance_group { count: 2 } instance_group { gpus: [ 0, 1 ] }"
    assert len(await warmed(tmp_path, version(config=config))) == 4


async def test_a_version_without_a_contract_is_warmed_with_zeros(tmp_path: Path) -> None:
    more = """
    input { name: "t" data_type: TYPE_STRING dims: [ 1 ] }
    input { name: "o" data_type: TYPE_INT64 dims: [ 1 ] optional: true }
    """
    (asked,) = await warmed(tmp_path, version(config=CONFIG + more, has_contract=False))
    assert {name: (array.dtype, array.shape) for name, array in asked["x"].items()} == {
        "x": (np.float32, (1, 1, 2)),
        "t": (object, (1, 1)),
    }
    assert asked["x"]["t"].tolist() == [[b""]]
    assert asked["datatypes"] == {"x": "FP32", "t": "BYTES"}
    # shapes that the configuration lacks come from the signature
    signature = {"inputs": [{"name": "x", "datatype": "BF16", "shape": [-1, 3]}]}
    config = 'backend: "onnxruntime" max_batch_size: 4'
    bare = version(config=config, has_contract=False, signature=signature)
    (asked,) = await warmed(tmp_path, bare)
    assert (asked["x"]["x"].shape, asked["datatypes"]) == ((1, 3), {"x": "BF16"})


async def test_nothing_is_made_up_for_code_sequences_huge_or_unknown_input(tmp_path: Path) -> None:
    for config in (
        CONFIG.replace("onnxruntime", "python"),
        CONFIG.replace("[ -1, 2 ]", "[ 100000000 ]"),
        CONFIG + BATCHING % "direct { }",
        'backend: "onnxruntime"',
    ):
        assert await warmed(tmp_path, version(config=config, has_contract=False)) == [], config


# --- on a timer ----------------------------------------------------------------------------------


async def rounds(
    folder: Path,
    *answers: Any,
    targets: list[tuple[Replica, PublishedVersion]] | None = None,
    script: Script | None = None,
    failures: int = 0,
    added: tuple[str, ...] = (),
) -> list[tuple[str, int, str]]:
    """What is reported in a round per answer, or by a script, while the first reports fail."""
    news: list[tuple[str, int, str]] = []
    left = [Unavailable("the store")] * failures
    scene = Scene(folder, *answers, script=script or Script(*[nothing] * len(answers)))

    async def report(replica: str, version: PublishedVersion, why: str) -> None:
        if left:
            raise left.pop()
        news.append((replica, version.number, why))

    await scene.publish()
    if added:
        await scene.add(*added)
    looked_at = [(A, version())] if targets is None else targets
    with pytest.raises(asyncio.CancelledError):  # when the script has ended
        async with asyncio.timeout(20):
            await scene.contracts.run(lambda: looked_at, report, 60.0)
    return news


TOLD = ("a", 1, SAYS_WRONG)


async def test_two_wrong_answers_in_a_row_are_reported_once_and_a_right_one_after_it(
    tmp_path: Path,
) -> None:
    rows: list[tuple[list[Any], list[tuple[str, int, str]]]] = [
        ([WRONG, WRONG, WRONG, RIGHT, RIGHT], [TOLD, ("a", 1, "")]),  # two in a row, and once
        ([WRONG, RIGHT], []),
        ([GONE, GONE], []),  # one that is not reached changes nothing
        ([WRONG, GONE, RIGHT], []),
        ([WRONG, WRONG, GONE, WRONG], [TOLD]),
    ]
    for answers, news in rows:
        assert await rounds(tmp_path, *answers) == news, answers


async def test_a_second_look_follows_soon_and_a_report_that_is_not_taken_is_repeated(
    tmp_path: Path,
) -> None:
    script = Script(nothing, nothing)
    assert await rounds(tmp_path, WRONG, RIGHT, script=script) == []
    assert script.slept == [60.0, SECOND_LOOK, 60.0]
    assert await rounds(tmp_path, WRONG, WRONG, failures=1) == [TOLD]


async def test_versions_without_a_contract_are_not_asked_and_hide_no_other(tmp_path: Path) -> None:
    without = (A, version(has_contract=False))
    assert await rounds(tmp_path, WRONG, targets=[without]) == []
    assert await rounds(tmp_path, WRONG, targets=[(A, version(9)), (A, version())]) == [TOLD]
    (told,) = await rounds(tmp_path, WRONG, targets=[without], added=("one",))
    assert told[2].startswith("golden case 0 ('one'): ")


async def test_what_is_no_target_any_more_is_forgotten(tmp_path: Path) -> None:
    targets = [(A, version())]
    script = Script(nothing, targets.clear, lambda: targets.append((A, version())))
    assert await rounds(tmp_path, WRONG, WRONG, RIGHT, targets=targets, script=script) == [TOLD]
