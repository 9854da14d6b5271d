"""The page on which versions are tried: its form, and what comes of it."""

import asyncio
import base64
import io
from pathlib import Path
from typing import Any

import pytest
from admin.api.admin_scene import Client, application, plane, play
from starlette.datastructures import FormData, UploadFile
from trying_desk import Desk, metadata

from serve.admin.web.input_fields import InputField, fields_of, given_of, together
from serve.core.errors import Invalid, Unavailable
from serve.tensors.metadata import TensorSpec

from .web_scene import HTMX, PERSON, got, with_pages

GIVEN = {"a": "1", "b": "2", "form-0": "json", "json-0": "[[1, 2]]"}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Any, Desk]:
    """Pages over model `m`, whose version n answers its input times n."""
    one = plane(tmp_path)
    desk = Desk(one, tmp_path)
    return with_pages(application(one, tries=desk.desk)), desk


@pytest.fixture
def app(made: tuple[Any, Desk]) -> Any:
    return made[0]


def run(app: Any, **fields: Any) -> Any:
    return got(app, "/try/m", "POST", data=GIVEN | fields, headers=HTMX)


def test_what_is_compared_follows_from_the_link_or_from_what_serves(app: Any) -> None:
    assert got(app, "/try").headers["location"] == "/try/m"
    text = got(app, "/try/m").text
    a, b = (text.split(f'name="{name}"')[1].split("</select>")[0] for name in "ab")
    assert '<option value="2" selected' in a and '<option value="1" selected' in b
    text = got(app, "/try/m?a=1&via=grpc").text
    assert '<option value="1" selected' in text
    assert '<option value="grpc" selected' in text
    assert ">none<" in text and '<option value="-" selected' not in text
    assert got(app, "/try/no").status_code == 404


def test_the_form_follows_from_what_the_version_takes(made: Any) -> None:
    app, desk = made
    for datatype, tab in (("FP32", "grid"), ("BYTES", "text")):
        desk.gateway.described["1"] = metadata(datatype, "<b>")
        text = got(app, "/try/m?a=1").text
        assert f'name="form-0" id="form-0" value="{tab}"' in text
        assert "&lt;b&gt;" in text and "<b>" not in text
    told = got(app, "/api/models/m/metadata?selector=1").json()
    assert told["inputs"] == [{"name": "<b>", "datatype": "BYTES", "shape": [-1, 2]}]
    assert (told["selector"], told["preprocessing"]) == ("1", {})


def test_a_version_that_nobody_holds_is_a_page_that_says_so(made: Any) -> None:
    app, desk = made
    desk.gateway.scripted["3"] = Unavailable("nobody is there", try_this="wait")
    answer = got(app, "/try/m?a=3")
    assert answer.status_code == 503 and "nobody is there" in answer.text


def test_fields_stay_while_another_version_takes_the_same(made: Any) -> None:
    app, desk = made
    known = got(app, "/try/m?a=1").text.split('name="known" value="')[1].split('"')[0]
    path = f"/try/m/fields?known={known}&a="
    assert got(app, path + "2", headers=HTMX).status_code == 204
    desk.gateway.described["2"] = metadata("INT64")
    assert "INT64" in got(app, path + "2", headers=HTMX).text


def test_a_run_shows_both_answers_and_has_its_own_link(app: Any) -> None:
    answer = run(app)
    assert answer.status_code == 200, answer.text
    path = answer.headers["hx-push-url"]
    assert "The outputs differ" in answer.text or "Same top class" in answer.text
    assert answer.text.count('class="side-') == 2
    whole = got(app, path)
    assert "<html" in whole.text and "<html" not in answer.text
    assert answer.text.strip() in whole.text
    plain = got(app, "/try/m", "POST", data=GIVEN)
    assert plain.status_code == 303 and plain.headers["location"].startswith("/runs/")


def test_one_side_alone_can_be_tried_by_grpc(made: Any) -> None:
    app, desk = made
    assert run(app, b="-", via="grpc").text.count('class="side-') == 1
    assert [(one[0], one[2]) for one in desk.gateway.asked] == [("1", "grpc")]


def test_a_side_that_fails_says_why_beside_the_other(made: Any) -> None:
    app, desk = made
    desk.gateway.scripted["call 2"] = Unavailable("nobody <is> there", why="a reason")
    text = run(app).text
    assert "nobody &lt;is&gt; there" in text and text.count('class="side-') == 2


def test_what_cannot_be_asked_is_told_beside_the_form(app: Any) -> None:
    for change in (
        {"json-0": "[[1, 2, 3]]"},
        {"form-0": "pickle"},
        {"a": "../etc"},
        {"top_k": "0"},
        {"seed": "x"},
        {"form-0": "random", "batch": "99999"},
        {"form-all": "again", "run": "0" * 16},
    ):
        answer = run(app, **change)
        assert answer.status_code in (404, 422) and 'class="verdict bad"' in answer.text
        assert "<html" not in answer.text
    headers = PERSON | {"content-type": "multipart/form-data; boundary=x"}
    answer = got(app, "/try/m", "POST", content=b"hello", headers=headers)
    assert answer.status_code == 422 and "form cannot be read" in answer.text


def test_the_input_of_a_try_can_be_sent_again(made: Any) -> None:
    app, desk = made
    path = run(app).headers["hx-push-url"]
    identity = path.rsplit("/", 1)[1]
    again = got(app, f"/try/m?a=2&run={identity}").text
    assert f'name="run" value="{identity}"' in again
    answer = run(app, **{"form-all": "again", "run": identity, "a": "2", "b": "-"})
    assert answer.status_code == 200, answer.text
    assert desk.gateway.asked[-1][1]["x"].tolist() == [[1, 2]]


def test_a_try_is_listed_and_removed(app: Any) -> None:
    async def scenario(client: Client) -> Any:
        tried = await client.post("/try/m", data=GIVEN, headers=HTMX)
        path = tried.headers["hx-push-url"]
        listed = await client.get("/runs?model=m", headers=PERSON)
        other = await client.get("/runs?model=other", headers=PERSON)
        removed = await client.post(f"{path}/remove", headers=PERSON)
        return path, listed.text, other.text, removed, await client.get(path, headers=PERSON)

    path, listed, other, removed, gone = play(app, scenario)
    assert path in listed and path not in other
    assert "servegate compare" in other
    assert (removed.status_code, removed.headers["location"]) == (303, "/runs")
    assert gone.status_code == 404


def test_snippets_are_those_of_the_api(app: Any) -> None:
    path = run(app).headers["hx-push-url"]
    text = got(app, f"{path}/snippets", headers=HTMX).text
    told = got(app, f"/api/tries/{path.rsplit('/', 1)[1]}/snippets?side=b").json()
    assert [one["title"] for one in told] == ["curl", "Python, tritonclient over HTTP", "grpcurl"]
    assert all(f">{one['title']}<" in text for one in told)
    assert text.count("<pre") == 6


def test_a_case_of_a_plain_folder_is_refused_and_so_is_a_tolerance_that_is_none(app: Any) -> None:
    path = run(app).headers["hx-push-url"]
    for atol, status in (("", 409), ("0.1", 409), ("x", 422), ("-1", 422), ("nan", 422)):
        data = {"side": "a", "name": "one", "atol": atol}
        answer = got(app, f"{path}/contract", "POST", data=data, headers=HTMX)
        assert answer.status_code == status, atol
        assert ("model push" in answer.text) == (status == 409)


# --- the fields of the form ----------------------------------------------------------------------


IMAGE: dict[str, Any] = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32"}
IMAGE |= {"resize": [8, 16], "resample": "box"}
CODEPOINTS = {"kind": "text", "as": "codepoints", "dtype": "INT32"}


def field(datatype: str, *shape: int, steps: Any = None, examples: bool = False) -> InputField:
    preprocessing = {"inputs": {"x": steps}} if steps else {}
    (found,) = fields_of({"x": TensorSpec("x", datatype, shape)}, preprocessing, examples=examples)
    return found


def given(form: list[tuple[str, Any]], *inputs: str) -> Any:
    return asyncio.run(given_of(FormData(form), inputs or ("x",)))


def upload(name: str, data: bytes) -> UploadFile:
    return UploadFile(io.BytesIO(data), filename=name)


def test_what_can_be_given_follows_from_the_datatype_the_shape_and_the_preprocessing() -> None:
    for datatype, shape, steps, first, missing in (
        ("FP32", (-1, 8, 16, 1), IMAGE, "draw", "text"),
        ("FP32", (-1, 8, 16, 3), IMAGE | {"color": "rgb"}, "image", "text"),
        ("BYTES", (-1, 1), None, "text", "grid"),
        ("INT64", (-1, 4), None, "grid", "image"),
        ("FP32", (-1, 3, 224, 224), None, "random", "grid"),
        ("INT32", (-1, 8), CODEPOINTS, "text", "draw"),
    ):
        forms = field(datatype, *shape, steps=steps).forms
        assert forms[0] == first and missing not in forms, shape
        assert {"json", "csv", "npy", "random"} <= set(forms)
        assert len(set(forms)) == len(forms)
    drawn = field("FP32", -1, 8, 16, 1, steps=IMAGE)
    assert drawn.canvas == (256, 128), "the proportions that the model sees"
    assert any("8 × 16" in word for word in drawn.words)


def test_a_grid_has_rows_where_it_has_room_for_them() -> None:
    for shape, grid, has_rows in (
        ((-1, 8, 8, 1), (8, 8, 1), False),
        ((-1, 4), (-1, 4), True),
        ((-1,), (-1,), True),
        ((2, 3), (2, 3), False),
    ):
        found = field("FP32", *shape)
        assert (found.grid, found.has_rows) == (grid, has_rows), shape


def test_several_inputs_can_be_given_together_and_one_needs_no_second_way() -> None:
    specs = {name: TensorSpec(name, "FP32", (-1, 2)) for name in ("a", "b")}
    several = fields_of(specs, {}, examples=True)
    assert together(several, examples=True, again=False)[:2] == ("each", "example")
    assert all("example" not in one.forms for one in several)
    one = (field("FP32", -1, 2, examples=True),)
    assert together(one, examples=True, again=False) == ()
    assert "example" in one[0].forms
    assert together(one, examples=True, again=True) == ("again", "each")


def test_an_optional_input_is_left_out_unless_another_tab_is_chosen() -> None:
    specs = {name: TensorSpec(name, "FP32", (-1, 3)) for name in ("x", "mask")}
    needed, optional = fields_of(specs, {}, examples=False, optional={"mask"})
    assert (needed.forms[0], optional.forms[:2]) == ("grid", ("omit", "grid"))
    form = [("form-0", "json"), ("json-0", "[1]"), ("form-1", "omit"), ("grid-1", "[0, 0, 0]")]
    found = asyncio.run(given_of(FormData(form), ["x", "mask"]))
    assert list(found) == ["x"]


def test_every_tab_gives_its_form_and_only_the_open_one_counts() -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"png").decode()
    for tab, name, content, kind, data in (
        ("grid", "grid-0", "[[1]]", "json", b"[[1]]"),
        ("text", "text-0", "a\r\nb\r\n", "text", b"a\nb"),
        ("random", "json-0", "[1]", "random", b""),
        ("image", "image-0", upload("a.png", b"png"), "image", b"png"),
        ("npy", "npy-0", upload("a.npy", b"\x93NUMPY"), "npy", b"\x93NUMPY"),
        ("npy", "npy-0", upload("a.npz", b"PK.."), "npz", b"PK.."),
        ("draw", "drawn-0", picture, "image", b"png"),
    ):
        found = given([("form-0", tab), (name, content), ("csv-0", "3"), ("text-1", "no")])
        assert found["x"][:2] == (kind, data), tab
    form = [("form-0", "json"), ("json-0", " [1, 2] ")]
    assert given(form) == {"x": ("json", b"[1, 2]", "the field 'JSON'")}
    form = [("form-all", "json"), ("json-all", '{"inputs": []}'), ("form-0", "random")]
    assert list(given(form, "a", "b")) == [""], "what is given together has no name"
    form = [("form-0", "example"), ("example-0", "3-0")]
    assert given(form) == {"": ("example", b"3-0", "")}


def test_what_is_missing_is_told() -> None:
    with pytest.raises(Invalid, match="has no input"):
        given([])
    for tab, name, content, word in (
        ("json", "json-0", "  ", "the field 'JSON' is empty"),
        ("draw", "drawn-0", "", "the drawing is empty"),
        ("draw", "drawn-0", "data:image/png;base64,%%", "cannot be read"),
        ("draw", "drawn-0", "data:text/html,<script>", "the drawing is empty"),
        ("image", "image-0", upload("", b""), "no picture is selected"),
        ("npy", "npy-0", "text", "no file is selected"),
        ("pickle", "x", "", "'pickle' is not a valid input format"),
    ):
        with pytest.raises(Invalid, match=word):
            given([("form-0", tab), (name, content)])
