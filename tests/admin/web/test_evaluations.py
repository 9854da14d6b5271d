"""The pages of the workbench: evaluations, datasets, and kept load tests."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from admin.api import admin_scene
from evaluating_scene import ROWS, npy
from workbench.loadtest.records import report_of, run_of

from serve.workbench.evaluation.rows import Fresh

from .pages_scene import Pages, words
from .web_scene import HTMX, with_pages

evaluated = functools.partial(admin_scene.evaluated, dressed=with_pages, accept="text/html")

ASKED = {"model": "m", "dataset": "three", "a": "1", "b": "2", "gates": "accuracy(b)>=0.95\n\n"}


async def begun(client: Any, scene: Any, **more: str) -> str:
    """An evaluation that has ended; its page."""
    answer = await client.post("/evaluations", data=ASKED | more)
    assert answer.status_code == 303, answer.text
    path = str(answer.headers["location"])
    await scene.ended(path.rsplit("/", 1)[1])
    return path


def test_what_is_asked_in_the_form_is_evaluated_listed_and_removed(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> None:
        form = (await client.get("/evaluations?dataset=three")).text
        assert '<option value="three" selected>' in form
        assert '<option value="1"' in form and '<option value="2"' in form
        path = await begun(client, scene)
        await begun(client, scene, gates="accuracy(b)>=0.5")
        shown, listed = await client.get(path), await client.get("/evaluations")
        assert shown.status_code == 200, shown.text
        assert "✗ failed" in shown.text and "measured: 90.00 %" in shown.text
        assert "A is right on 6 rows where B is wrong, and B on 0 rows" in shown.text
        assert path in listed.text and "90.0 %" in listed.text
        assert ">failed<" in listed.text and ">passed<" in listed.text
        removed = await client.post(f"{path}/remove")
        assert removed.headers["location"] == "/evaluations"
        assert (await client.get(path)).status_code == 404

    evaluated(tmp_path, scenario)


def test_what_cannot_be_asked_is_told_beside_the_form(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> None:
        for word, change in (
            ("is invalid", {"gates": "precision(b)>1"}),
            ("from 1 to 64", {"concurrency": "0"}),
            ("from 1 to 1024", {"batch": "many"}),
            ("there is no dataset", {"dataset": "no"}),
            ("too long", {"a": "x" * 300}),
        ):
            answer = await client.post("/evaluations", data=ASKED | change, headers=HTMX)
            assert answer.status_code in (404, 422), answer.text
            assert word in answer.text and "<html" not in answer.text

    evaluated(tmp_path, scenario)


def test_rows_of_a_bucket_are_a_part_of_the_page_and_lead_to_try(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> Any:
        path = await begun(client, scene)
        rows, shares = f"{path}/rows?", "?bucket=only-a&slice=half%3Dfirst"
        for query, numbers in (("label=2&predicted=0", [14, 35, 56]), ("bucket=failed", [])):
            assert rows_of((await client.get(rows + query, headers=HTMX)).text) == numbers
        assert (await client.get(f"{rows}bucket=lost", headers=HTMX)).status_code == 422
        part = await client.get(f"{path}/rows{shares}", headers=HTMX)
        return path + shares, part, await client.get(path + shares)

    link, part, whole = evaluated(tmp_path, scenario)
    assert rows_of(part.text) == rows_of(whole.text) == [7, 14, 28]
    assert part.headers["hx-push-url"] == link
    assert "/try/m?a=1&amp;b=2&amp;dataset=three&amp;row=7&amp;revision=1" in part.text


def test_a_page_of_rows_knows_its_neighbours_and_keeps_the_choice(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> Any:
        many = [Fresh("0", {"x": npy([7 * number, 0])}) for number in range(150)]
        await scene.datasets.add("many", many, source="test", author="ann")
        path = await begun(client, scene, dataset="many", b="", gates="")
        return [
            (await client.get(f"{path}/rows?{query}", headers=HTMX)).text
            for query in ("from=60&bucket=right", "from=120&bucket=right", "from=60&label=1")
        ]

    text, last, none = evaluated(tmp_path, scenario)
    assert rows_of(text) == list(range(60, 120))
    assert "rows?bucket=right&amp;from=120" in text and 'rows?bucket=right"' in text
    assert "61 to 120 of 150" in text
    assert rows_of(last) == list(range(120, 150)) and 'rel="next"' not in last
    assert rows_of(none) == []


def test_what_runs_is_followed_cancelled_and_resumed(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> Any:
        scene.gateway.gate.clear()
        scene.gateway.hold_after = 10
        path = (await client.post("/evaluations", data=ASKED)).headers["location"]
        await scene.gateway.reached.wait()
        running = await client.get(path)
        cancelling = client.post(f"{path}/cancel")
        scene.gateway.gate.set()
        cancelled = await cancelling
        stopped = await client.get(path)
        scene.gateway.hold_after = 0
        resumed = await client.post(f"{path}/resume")
        await scene.ended(path.rsplit("/", 1)[1])
        again = await client.post(f"{path}/cancel", headers=HTMX)
        return path, running, cancelled, stopped, resumed, await client.get(path), again

    path, running, cancelled, stopped, resumed, done, again = evaluated(tmp_path, scenario)
    assert f'data-follow="/api{path}"' in running.text and ">Cancel<" in running.text
    assert cancelled.headers["location"] == resumed.headers["location"] == path
    assert ">Resume<" in stopped.text and "data-follow" not in stopped.text
    assert f"{ROWS} of {ROWS} rows" in done.text and ">Resume<" not in done.text
    assert again.status_code == 409


def test_a_row_is_tried_as_it_was_evaluated(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> Any:
        shown = await client.get("/try/m?a=1&dataset=three&row=7&revision=1")
        fields = {"form-all": "again", "dataset": "three", "row": "7", "revision": "1"}
        made = await client.post("/try/m", data={"a": "1", "b": "2"} | fields, headers=HTMX)
        odd = await client.get("/try/m?dataset=three&row=x")
        assert (await client.get("/try/m?dataset=three&row=7")).status_code == 200
        return shown, made, odd

    shown, made, odd = evaluated(tmp_path, scenario)
    assert "Row 7 of dataset three, label “1”" in shown.text
    assert made.status_code == 200, made.text
    assert ">7</td><td>1</td>" in made.text and ">14</td><td>2</td>" in made.text
    assert odd.status_code == 422


def test_a_dataset_shows_what_it_holds_by_pages(tmp_path: Path) -> None:
    async def scenario(client: Any, scene: Any) -> Any:
        listed = await client.get("/datasets")
        shown = await client.get("/datasets/three")
        part = await client.get("/datasets/three?revision=1&from=58", headers=HTMX)
        removed = await client.post("/datasets/three/remove")
        return listed, shown, part, removed, await client.get("/datasets/three")

    listed, shown, part, removed, gone = evaluated(tmp_path, scenario)
    assert 'href="/datasets/three"' in listed.text
    assert "row-59" in shown.text and "half: second" in shown.text
    assert "<html" not in part.text and rows_of(part.text) == [58, 59]
    assert removed.headers["location"] == "/datasets"
    assert gone.status_code == 404


def rows_of(text: str) -> list[int]:
    """The numbers of the rows on a page."""
    return [int(one) for one in re.findall(r'<span class="soft">row (\d+)', text)]


# --- load tests ----------------------------------------------------------------------------------


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def keep(pages: Pages, name: str, median: float = 0.02, **changes: object) -> None:
    """A report of 60 seconds is kept."""
    report = replace(report_of(run_of(60, median=median)), name=name, model="digits", **changes)  # type: ignore[arg-type]
    pages.api("POST", "/api/load/reports", json.loads(json.dumps(report.to_json())))


def test_reports_are_listed_with_their_verdicts(pages: Pages) -> None:
    assert "servegate load scenario smoke" in words(pages.get("/loadtests"))
    keep(pages, "good-one", passed=True, findings=("it was quick",))
    assert "Before" not in words(pages.get("/loadtests"))
    keep(pages, "bad-one", passed=False, title="<b>Evil</b>")
    answer = pages.get("/loadtests")
    said = words(answer)
    assert "passed" in said and "failed" in said and "it was quick" in said
    assert "<b>Evil" not in answer.text and 'name="a" value="good-one"' in answer.text


def test_a_report_is_shown_in_a_frame_that_runs_nothing(pages: Pages) -> None:
    keep(pages, "one")
    answer = pages.get("/loadtests/one")
    assert "<iframe" in answer.text and ' sandbox title="' in answer.text
    assert 'src="/api/load/reports/one/report.html"' in answer.text
    framed = pages.get("/api/load/reports/one/report.html").headers["content-security-policy"]
    assert "frame-ancestors 'self'" in framed and "sandbox" in framed
    assert pages.get("/loadtests/none").status_code == 404
    for query, status in (("", 422), ("a=one&b=one", 422), ("a=one&b=none", 404)):
        assert pages.get(f"/loadtests/compare?{query}").status_code == status
    assert pages.post("/loadtests/one/remove").headers["location"] == "/loadtests"
    assert pages.api("GET", "/api/load/reports") == []


def test_two_reports_are_held_against_each_other(pages: Pages) -> None:
    keep(pages, "before", 0.02)
    keep(pages, "after", 0.04)
    ratios = {
        one["name"]: one for one in pages.api("GET", "/api/load/reports/before/compare/after")
    }
    assert ratios["p50"]["ratio"] == pytest.approx(2.0, rel=0.05)
    assert ratios["p50"]["verdict"] == "slower"
    answer = pages.get("/loadtests/compare?a=before&b=after")
    path = "/api/load/reports/before/compare/after/report.html"
    assert f'src="{path}"' in answer.text
    assert "slower" in pages.get(path).text
