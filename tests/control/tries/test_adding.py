"""Golden cases that are added to a published version: kept, asked, listed, and taken away."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control.publishing import ADA, Scene, files, sha256

from serve.control.added_cases import CONTRACT, added_of, blobs_of_cases, has_cases
from serve.control.models import By
from serve.control.tries.golden_cases import AddedCases
from serve.core.errors import Conflict, NotFound, PreconditionFailed
from serve.tensors.contracts import Case, write_contract
from serve.tensors.expected_outputs import Tolerance

ONE = np.ones((1, 4), np.float32)
TWO = np.ones((1, 2), np.float32)


def case(name: str = "a row", scale: float = 1.0) -> Case:
    return Case({"x": ONE * np.float32(scale)}, {"y": TWO}, name, Tolerance(atol=0.5))


class Adding:
    """The commands over a scene in which `m` version 1 is published."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder)
        self.why = ""
        self.asked: list[Case] = []
        self.added = AddedCases(
            self.scene.plane.store,
            self.scene.storage,
            decisions=lambda: self.scene.plane.decisions,
            reload=self.scene.plane.reload,
            refuses=self._refuses,
            collecting=self.scene.records.collecting,
            wall=self.scene.wall,
        )

    async def _refuses(self, version: Any, asked: Case) -> str:
        self.asked.append(asked)
        return self.why

    @property
    def version(self) -> Any:
        return self.scene.version()

    @property
    def decisions(self) -> Any:
        return self.scene.plane.decisions


async def begun(folder: Path, **more: bytes) -> Adding:
    adding = Adding(folder)
    await adding.scene.begin()
    await adding.scene.publish("m", files(**more))
    return adding


@pytest.fixture
async def adding(tmp_path: Path) -> Adding:
    return await begun(tmp_path)


async def test_an_added_case_is_listed_with_who_added_it_and_shows_in_history(
    adding: Adding,
) -> None:
    assert not has_cases(adding.decisions, adding.version)
    added = await adding.added.add(adding.version, case(), By("bob", "it is right"))
    assert has_cases(adding.decisions, adding.version)
    (found,) = await adding.added.all(adding.version)
    assert (found.id, found.author, found.added) == (added.id, "bob", True)
    assert (found.case.name, found.case.tolerance.atol) == ("a row", 0.5)
    assert np.array_equal(found.case.inputs["x"], ONE)
    (row, *_) = await adding.scene.plane.store.history(kind=CONTRACT)
    assert (row["key"], row["author"], row["reason"]) == ("m:1", "bob", "it is right")


async def test_the_same_case_again_is_no_mistake(adding: Adding) -> None:
    first = await adding.added.add(adding.version, case(), ADA)
    again = await adding.added.add(adding.version, case(), By("bob"))
    assert (again.id, again.author) == (first.id, "ada")
    assert len(added_of(adding.decisions, adding.version)) == 1


async def test_a_case_that_the_version_does_not_pass_is_refused(adding: Adding) -> None:
    adding.why = "replica a: output 'y'[0,0] is 2, expected 1"
    with pytest.raises(Conflict) as refused:
        await adding.added.add(adding.version, case(), ADA)
    assert refused.value.why == adding.why
    assert added_of(adding.decisions, adding.version) == ()


async def test_those_that_came_with_the_version_stand_before_and_stay(tmp_path: Path) -> None:
    adding = await begun(tmp_path, **dict(write_contract([case("own")])))
    added = await adding.added.add(adding.version, case("added", 2), ADA)
    listed = await adding.added.all(adding.version)
    assert [(one.id, one.case.name, one.added) for one in listed] == [
        ("0", "own", False),
        (added.id, "added", True),
    ]
    with pytest.raises(Conflict, match="case 0 of version 1"):
        await adding.added.remove(adding.version, "0", ADA)
    await adding.added.remove(adding.version, added.id, ADA)
    with pytest.raises(NotFound):
        await adding.added.remove(adding.version, added.id, ADA)
    assert len(await adding.added.all(adding.version)) == 1


async def test_blobs_stay_as_long_as_the_version_does(adding: Adding) -> None:
    await adding.added.add(adding.version, case(), ADA)
    contents = {sha256(data) for data in write_contract([case()]).values()}
    assert blobs_of_cases(adding.decisions) == contents
    retention = adding.scene.retention
    await retention.retire("m", 1, ADA)
    assert blobs_of_cases(adding.decisions) == contents
    with pytest.raises(Conflict, match="its state is 'retired'"):
        await adding.added.add(adding.version, case("other", 3), ADA)
    await retention.remove("m", 1, ADA)
    assert blobs_of_cases(adding.decisions) == frozenset()


async def test_a_change_that_was_not_seen_is_not_overwritten(adding: Adding) -> None:
    with pytest.raises(PreconditionFailed):
        await adding.added.add(adding.version, case(), By("ada", "", '"99"'))
    both = (adding.added.add(adding.version, case(str(n), n), ADA) for n in (2, 3))
    await asyncio.gather(*both)
    assert len(added_of(adding.decisions, adding.version)) == 2
