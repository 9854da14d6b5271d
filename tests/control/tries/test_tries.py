"""Tries: what each side is sent, what is told of its answer, and what is kept."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import ControlPlane, replica, write_model
from PIL import Image
from trying_desk import ROW, Desk, ask, metadata

from serve.control.tries.desk import MOST_DISAGREEMENTS
from serve.control.tries.messages import unpack
from serve.control.tries.records import Try
from serve.control.tries.requests import Offered
from serve.core.errors import BadRequest, Invalid, NotFound, Unavailable, UnknownModel
from serve.tensors.archive import write_archive

STEPS = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32"}


async def begun(folder: Path, steps: Any = None) -> Desk:
    plane = ControlPlane(folder, replicas=[replica("a")])
    model = write_model(plane.repository, "m", 1, 2, 3)
    if steps:
        (model / "preprocessing.json").write_text(json.dumps({"inputs": {"x": steps}}))
    await plane.begin(a={"m": (1, 2)})
    return Desk(plane, folder)


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    """Versions 1 and 2 of `m` can be called."""
    return await begun(tmp_path)


async def test_both_sides_get_the_same_input_and_what_they_answer_is_compared(desk: Desk) -> None:
    one = await desk.desk.tries.make(ask("1", "2", via="grpc"), "ada")
    asked = [(selector, via) for selector, _, via in desk.gateway.asked]
    assert asked == [("1", "grpc"), ("2", "grpc")]
    assert one.author == "ada"
    assert [side.version for side in one.sides] == ["1", "2"]
    assert [side.outputs[0].values for side in one.sides] == [[[1, 2]], [[2, 4]]]
    assert one.difference is not None and one.difference["y"].max_abs == 2
    assert one.notes == []
    assert await desk.desk.shelf.get(one.id) == one
    (line,) = await desk.desk.shelf.all(model="m", limit=9)
    assert (line.id, line.versions, line.agrees) == (one.id, ["1", "2"], False)
    page = one.to_json()
    page["difference"]["y"] |= {"top_1": 1.0, "top_1_differs": []}  # of an earlier release
    assert Try.from_json(page) == one
    assert await desk.desk.shelf.all(model="other", limit=9) == []


@pytest.mark.parametrize(
    ("late", "pauses", "is_exact", "calls"), [(2, 2, True, 1), (100, 4, False, 0)]
)
async def test_a_call_is_waited_for_a_while_until_triton_has_counted_it(
    desk: Desk, late: int, pauses: int, is_exact: bool, calls: int
) -> None:
    desk.gateway.late = late
    (side,) = (await desk.desk.tries.make(ask("1"), "ada")).sides
    assert len(desk.pauses) == pauses
    found = side.latency
    assert (found.exact, found.calls, found.round_trip) == (is_exact, calls, 0.01)
    assert found.queue == (pytest.approx(0.001) if is_exact else None)


@pytest.mark.parametrize("when", ["2", "call 2"])
async def test_what_a_side_says_instead_is_its_own_error(desk: Desk, when: str) -> None:
    desk.gateway.scripted[when] = Unavailable("nobody is there", why="a reason", try_this="that")
    one = await desk.desk.tries.make(ask("1", "2"), "ada")
    fine, failed = one.sides
    assert fine.error is None and failed.outputs == []
    assert (failed.error.code, failed.error.why) == ("unavailable", "a reason")
    assert one.difference is None


async def test_a_try_in_which_both_fail_is_kept_all_the_same(desk: Desk) -> None:
    desk.gateway.scripted = {"1": BadRequest("no"), "call 2": BadRequest("no")}
    one = await desk.desk.tries.make(ask("1", "2"), "ada")
    with pytest.raises(NotFound, match="no result"):
        await desk.desk.shelf.outputs(one.id, "b")
    assert unpack(await desk.desk.shelf.inputs(one.id, "b"))[0]["x"].tolist() == [[1, 2]]


async def test_input_that_does_not_fit_side_a_is_refused_and_that_of_b_is_its_error(
    desk: Desk,
) -> None:
    desk.gateway.described["2"] = metadata(name="other")
    with pytest.raises(Invalid):
        await desk.desk.tries.make(ask("2", "1"), "ada")
    with pytest.raises(UnknownModel):
        await desk.desk.tries.make(ask(model="no"), "ada")
    one = await desk.desk.tries.make(ask("1", "2"), "ada")
    assert one.sides[0].error is None
    assert one.sides[1].error.code == "invalid"


async def test_sides_that_want_different_tensors_each_get_theirs_and_that_is_said(
    desk: Desk,
) -> None:
    desk.gateway.described["2"] = metadata("FP64")
    one = await desk.desk.tries.make(ask("1", "2"), "ada")
    kinds = [unpack(await desk.desk.shelf.inputs(one.id, side))[1]["x"] for side in ("a", "b")]
    assert kinds == ["FP32", "FP64"]
    assert any("different tensors" in note for note in one.notes)


async def test_random_input_comes_back_with_its_seed(desk: Desk) -> None:
    inputs = {"": Offered("random")}
    first = await desk.desk.tries.make(ask(inputs=inputs, batch=3), "ada")
    again = await desk.desk.tries.make(ask(inputs=inputs, batch=3, seed=first.seed), "ada")
    other = await desk.desk.tries.make(ask(inputs=inputs, batch=3), "ada")
    first, again, other = [
        unpack(await desk.desk.shelf.inputs(one.id, "a"))[0]["x"] for one in (first, again, other)
    ]
    assert first.shape == (3, 2)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


async def test_what_was_given_is_kept_with_the_name_of_its_file(desk: Desk) -> None:
    tries = desk.desk.tries
    made = [
        await tries.make(ask(inputs={"x": Offered("json", ROW, "rows.json")}), "ada"),
        await tries.make(ask(), "ada"),
        await tries.make(ask(inputs={"x": Offered("random")}), "ada"),
    ]
    named, unnamed, random = [await desk.desk.row(one.id) for one in made]
    assert named == (ROW, "rows.json")
    assert unnamed == (ROW, f"{made[1].id}.json")
    assert random[1].endswith(".npz")
    assert np.load(io.BytesIO(random[0]))["x"].shape == (1, 2)


async def test_a_picture_is_shown_as_the_model_sees_it(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(file, "PNG")
    desk = await begun(tmp_path, STEPS)
    wanted = metadata()
    spec = type(wanted.inputs["x"])("x", "FP32", (-1, 4, 4, 1))
    desk.gateway.described["1"] = type(wanted)({"x": spec}, wanted.outputs)
    inputs = {"x": Offered("image", file.getvalue(), "a.png")}
    one = await desk.desk.tries.make(ask(inputs=inputs), "ada")
    assert one.inputs[0].preview
    with pytest.raises(NotFound):
        await desk.desk.shelf.picture(one.id, "y", "a")
    with Image.open(io.BytesIO(await desk.desk.shelf.picture(one.id, "x", "a"))) as seen:
        assert (seen.size, seen.getpixel((0, 0)), seen.getpixel((255, 255))) == ((256, 256), 0, 15)


async def test_the_newest_stay_and_a_removed_one_is_gone(desk: Desk) -> None:
    made = [await desk.desk.tries.make(ask(), "ada") for _ in range(3)]
    lines = await desk.desk.shelf.all(model="", limit=2)
    assert [line.id for line in lines] == [made[2].id, made[1].id]
    await desk.desk.shelf.remove(made[0].id)
    for identity in (made[0].id, "nothing", "../../etc"):
        with pytest.raises(NotFound, match="there is no run"):
            await desk.desk.shelf.get(identity)
    left = [found.key async for found in desk.storage.objects.list("tries")]
    assert not any(made[0].id in key for key in left)


def test_forms_and_selectors_that_there_are_not_are_refused() -> None:
    with pytest.raises(Invalid, match="not a form"):
        ask(inputs={"x": Offered("pickle")})
    with pytest.raises(Invalid):
        ask("1/../2")


async def test_a_call_to_which_a_candidate_responds_differently_becomes_a_run(desk: Desk) -> None:
    inputs = write_archive({"x": np.array([[1, 2]], np.float32)}, most=1000)
    for _ in range(MOST_DISAGREEMENTS + 3):
        await desk.desk.keep_disagreement("m", 1, 2, inputs)
    runs = await desk.desk.shelf.all(model="m", limit=100)
    assert len(runs) == MOST_DISAGREEMENTS, "they must not displace the runs of people"
    assert {(line.author, *line.asked, line.agrees) for line in runs} == {
        ("mirror", "1", "2", False)
    }
    await desk.desk.keep_disagreement("m", 2, 1, inputs)
    assert len(await desk.desk.shelf.all(model="m", limit=100)) == MOST_DISAGREEMENTS + 1
    with pytest.raises(UnknownModel):
        await desk.desk.keep_disagreement("nobody", 1, 2, inputs)
