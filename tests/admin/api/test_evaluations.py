"""Datasets and evaluations over the admin API."""

import asyncio
import csv
import io
import json

import pytest
from admin.api.admin_scene import assert_error
from admin.api.admin_scene import evaluated as play
from evaluating_scene import ROWS
from PIL import Image

from serve.core.errors import BodyTooLarge
from serve.workbench.evaluation.api.multipart import receive_file, receive_parts

CSV = b"x0,x1,label,half\n" + b"".join(
    b"%d,%d,%d,%s\n" % (n, n % 3, n % 3, b"first" if n < 30 else b"second") for n in range(ROWS)
)


def png(value=0):
    file = io.BytesIO()
    Image.new("L", (8, 8), value).save(file, "PNG")
    return file.getvalue()


async def evaluated(client, scene, **asked):
    body = {"model": "m", "dataset": "three", "a": "1", "b": "2", **asked}
    begun = await client.post("/api/evaluations", json=body)
    assert begun.status_code == 202, begun.text
    await scene.ended(begun.json()["id"])
    return f"/api/evaluations/{begun.json()['id']}"


def test_a_file_becomes_a_dataset_that_is_shown_and_removed(tmp_path):
    async def scenario(client, scene):
        path = "/api/datasets/rows"
        kept = await client.put(f"{path}?format=csv&slices=half", content=CSV)
        assert kept.status_code == 201, kept.text
        names = [one["name"] for one in (await client.get("/api/datasets")).json()]
        shown = (await client.get(path)).json()
        page = (await client.get(f"{path}/rows?from=58&count=5")).json()
        removed = await client.delete(path)
        return kept.json(), names, shown, page, removed.status_code, await client.get(path)

    kept, names, shown, page, removed, gone = play(tmp_path, scenario)
    assert kept["notes"] == []
    assert shown == {key: value for key, value in kept.items() if key != "notes"}
    assert (shown["rows"], shown["vector"], shown["slices"]) == (ROWS, ["x0", "x1"], ["half"])
    assert shown["classes"] == {"0": 20, "1": 20, "2": 20}
    assert names == ["rows", "three"]
    assert (page["total"], [one["row"] for one in page["rows"]]) == (ROWS, [58, 59])
    assert page["rows"][1]["slices"] == {"half": "second"}
    assert removed == 204
    assert_error(gone, 404, "not_found")


def test_a_form_has_a_folder_of_pictures_or_one_file_that_is_read_by_its_name(tmp_path):
    async def scenario(client, scene):
        files = [
            ("files", ("digits/7/a.png", png(10), "image/png")),
            ("files", ("digits/3/b.png", png(20), "image/png")),
            ("files", ("digits/notes.txt", b"hello", "text/plain")),
        ]
        kept = await client.post("/api/datasets", data={"name": "pictures"}, files=files)
        assert kept.status_code == 201, kept.text
        rows = (await client.get("/api/datasets/pictures/rows")).json()["rows"]
        data = {"name": "rows", "label": "label", "slices": "half"}
        one = [("files", ("rows.csv", CSV, "text/csv"))]
        table = await client.post("/api/datasets", data=data, files=one)
        return kept.json(), rows, await client.get(rows[1]["image"]), table.json()

    kept, rows, image, table = play(tmp_path, scenario)
    assert (kept["rows"], kept["pictures"], kept["source"]) == (2, True, "digits")
    assert kept["notes"] == ["left out (not a picture file): digits/notes.txt"]
    found = [(one["label"], one["name"]) for one in rows]
    assert found == [("3", "digits/3/b.png"), ("7", "digits/7/a.png")]
    assert image.headers["content-type"] == "image/png"
    assert "sandbox" in image.headers["content-security-policy"]
    assert Image.open(io.BytesIO(image.content)).getpixel((0, 0)) == 10
    assert table["rows"] == ROWS


def test_what_is_no_dataset_is_refused_and_nothing_is_kept(tmp_path):
    form, field = "multipart/form-data; boundary=xx", b"--xx\r\ncontent-disposition: form-data; "
    bodies = [
        (b"{}", "application/json", "is not multipart/form-data"),
        (b"", "multipart/form-data", "is not multipart/form-data"),
        (b"hello", form, "is not multipart/form-data"),
        (b"--xx\r\n", form, "last boundary is missing"),
        (field + b'name="name"\r\n\r\nrows\r\n--xx--\r\n', form, "no file was sent"),
        (b"--xx\r\nx: " + b"y" * 9000 + b"\r\n\r\n\r\n--xx--\r\n", form, "Maximum header size"),
        (
            field + b'name="label"\r\n\r\n' + b"y" * 70_000 + b"\r\n--xx--\r\n",
            form,
            "fields are too long",
        ),
    ]

    async def scenario(client, scene):
        for body, kind, word in bodies:
            sent = {"content": body, "headers": {"content-type": kind}}
            answer = await client.post("/api/datasets", **sent)
            assert word in assert_error(answer, 422, "invalid")["error"]
        path = "/api/datasets/rows"
        bad = await client.put(f"{path}?format=csv", content=CSV + b"1,oops,2,first\n")
        assert (
            "line 62: column 'x1' has the value 'oops'" in assert_error(bad, 422, "invalid")["what"]
        )
        assert_error(await client.get(path), 404, "not_found")

    play(tmp_path, scenario)


@pytest.mark.parametrize("form", [False, True])
def test_a_body_that_is_too_large_is_not_read_to_its_end(tmp_path, form):
    pieces = 0

    async def endless():
        nonlocal pieces
        yield b'--xx\r\ncontent-disposition: form-data; name="files"; filename="a.csv"\r\n\r\n'
        while True:
            pieces += 1
            yield bytes(1000)

    async def receive():
        if form:
            kind = "multipart/form-data; boundary=xx"
            await receive_parts(kind, endless(), tmp_path / "sent", most=10_000)
        else:
            await receive_file(endless(), tmp_path / "sent", most=10_000)

    with pytest.raises(BodyTooLarge):
        asyncio.run(receive())
    assert pieces <= 10


def test_an_evaluation_tells_everything_and_is_removed(tmp_path):
    async def scenario(client, scene):
        path = await evaluated(client, scene, gates=["accuracy(b)>=0.95"])
        lines = (await client.get("/api/evaluations")).json()
        shown = (await client.get(path)).json()
        gates = [("gate", "accuracy(b).low>=0.5"), ("gate", "p99(a)<1ms")]
        judged = (await client.get(f"{path}/gates", params=gates)).json()
        assert_error(await client.get(f"{path}/gates"), 422, "invalid")
        for verb in ("cancel", "resume"):
            assert_error(await client.post(f"{path}/{verb}"), 409, "conflict")
        assert (await client.delete(path)).status_code == 204
        assert_error(await client.get(path), 404, "not_found")
        return shown, lines, judged

    shown, lines, judged = play(tmp_path, scenario)
    assert (shown["state"], shown["done"], shown["total"]) == ("done", ROWS, ROWS)
    assert (shown["a"], shown["b"], shown["kind"], shown["passed"]) == (1, 2, "classes", False)
    gate = {"text": "accuracy(b)>=0.95", "value": 0.9, "passed": False}
    assert shown["report"]["gates"] == [gate]
    assert lines == [{key: value for key, value in shown.items() if key != "report"}]
    found = [(one["text"], one["passed"]) for one in judged]
    assert found == [("accuracy(b).low>=0.5", True), ("p99(a)<1ms", False)]


def test_rows_are_paged_filtered_and_exported(tmp_path):
    async def scenario(client, scene):
        path = await evaluated(client, scene)
        for query, total, numbers in (
            ("bucket=only-a", 6, [7, 14, 28, 35, 49, 56]),
            ("bucket=only-a&slice=half%3Dfirst", 3, [7, 14, 28]),
            ("bucket=only-a&from=4&count=1", 6, [49]),
            ("label=2&predicted=0", 3, [14, 35, 56]),
            ("bucket=failed", 0, []),
        ):
            page = (await client.get(f"{path}/rows?{query}")).json()
            assert (page["total"], [one["row"] for one in page["rows"]]) == (total, numbers)
        for query in ("count=201", "slice=half"):
            assert_error(await client.get(f"{path}/rows?{query}"), 422, "invalid")
        return await client.get(f"{path}/export.csv"), await client.get(f"{path}/export.json")

    as_csv, as_json = play(tmp_path, scenario)
    rows = list(csv.DictReader(io.StringIO(as_csv.text)))
    page = json.loads(as_json.text)
    assert (len(rows), len(page["rows"])) == (ROWS, ROWS)
    assert (rows[7]["label"], rows[7]["predicted_b"], rows[7]["bucket"]) == ("1", "0", "only-a")
    assert rows[7]["slice_half"] == "first"
    assert page["rows"][7]["b"]["predicted"] == "0"
    assert page["evaluation"]["report"]["answered"] == ROWS
    assert "attachment" in as_csv.headers["content-disposition"]


def test_an_evaluation_is_followed_to_its_end(tmp_path):
    async def scenario(client, scene):
        body = {"model": "m", "dataset": "three", "a": "1"}
        begun = (await client.post("/api/evaluations", json=body)).json()["id"]
        events = []
        async with client.stream("GET", f"/api/evaluations/{begun}/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
        return events

    events = play(tmp_path, scenario)
    assert (events[-1]["state"], events[-1]["done"]) == ("done", ROWS)
    assert [one["done"] for one in events] == sorted(one["done"] for one in events)


def test_what_cannot_be_asked_is_refused(tmp_path):
    changes = {
        "the metrics are accuracy(a or b)": {"gates": ["precision(b)>1"]},
        "via": {"via": "carrier pigeon"},
        "concurrency": {"concurrency": 0},
        "batch": {"batch": 100_000},
        "surprise": {"surprise": 1},
    }

    async def scenario(client, scene):
        for word, change in changes.items():
            body = {"model": "m", "dataset": "three", "a": "1", "b": "2", **change}
            answer = await client.post("/api/evaluations", json=body)
            assert word in assert_error(answer, 422, "invalid")["error"]

    play(tmp_path, scenario)
