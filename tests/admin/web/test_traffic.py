"""The traffic page: split, labels, history, and the way back."""

from pathlib import Path

import pytest

from serve.telemetry import Meters

from .pages_scene import Pages, hidden, words


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    made = Pages(tmp_path)
    made.publish(b"one", b"two")
    made.hold(1, 2)
    return made


def split(pages: Pages) -> dict[str, int]:
    found: dict[str, int] = pages.api("GET", "/api/routes/m")["split"]
    return found


def test_the_forms_weights_become_the_split(pages: Pages) -> None:
    form = {"weight__1": 3, "weight__2": 1, "reason": "slowly", **hidden(pages.get("/traffic/m"))}
    answer = pages.post("/traffic/m/split", **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/traffic/m")
    assert split(pages) == {"1": 3, "2": 1}
    said = words(pages.get("/traffic/m"))
    assert "version 1 75.0 %" in said and "slowly" in said and "split.1 — → 3" in said


def test_a_stale_page_changes_no_split_and_shows_the_new_one(pages: Pages) -> None:
    form = hidden(pages.get("/traffic/m"))
    pages.api("PUT", "/api/routes/m", {"split": {"2": 100}})
    answer = pages.post("/traffic/m/split", htmx=True, weight__1=1, **form)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/traffic/m?changed=1")
    assert split(pages) == {"2": 100}
    said = words(pages.get("/traffic/m?changed=1"))
    assert "Your change was not saved" in said and "version 2 100.0 %" in said


def test_what_is_no_share_is_refused(pages: Pages) -> None:
    before = split(pages)
    for weight in ("-1", "1.5", "x", "", "1e3", "99999999", "٣", "0"):
        answer = pages.post("/traffic/m/split", htmx=True, weight__1=weight)
        assert answer.status_code == 422 and split(pages) == before, weight
    pages.publish(b"three")
    answer = pages.post("/traffic/m/split", htmx=True, weight__3=1)
    assert answer.status_code == 409 and "version 3" in words(answer), "it is not ready"
    assert pages.get("/traffic/nothing").status_code == 404


def test_labels_are_made_moved_and_removed(pages: Pages) -> None:
    seen = []
    for version in (1, 2):
        pages.post("/traffic/m/labels", label="stable", version=version, reason="why")
        seen.append(pages.api("GET", "/api/models/m")["labels"])
    assert "stable points to version 2" in words(pages.get("/traffic/m"))
    pages.post("/traffic/m/labels/remove", label="stable")
    assert seen == [{"stable": 1}, {"stable": 2}]
    assert pages.api("GET", "/api/models/m")["labels"] == {}


def test_going_back_shows_what_changes_and_then_changes_it(pages: Pages) -> None:
    for weights in ({"1": 100}, {"1": 50, "2": 50}):
        pages.api("PUT", "/api/routes/m", {"split": weights})
    newest, *_, first = [one["revision"] for one in pages.api("GET", "/api/history?kind=route")]
    path = f"/traffic/m/rollback/{first}"
    asked = pages.get(path)
    assert f'href="{path}"' in pages.get("/traffic/m").text
    assert f"rollback/{newest}" not in pages.get("/traffic/m").text
    assert "split.1 50 → 100" in words(asked) and "split.2 50 → —" in words(asked)
    answer = pages.post(path, reason="worse", **hidden(asked))
    assert answer.headers["location"] == "/traffic/m"
    assert split(pages) == {"1": 100}
    assert f"restored revision {first}: worse" in words(pages.get("/traffic/m"))
    pages.api("PUT", "/api/routes/m", {"split": {"1": 1, "2": 1}})
    stale = pages.post(path, **hidden(asked))
    assert stale.headers["location"] == "/traffic/m?changed=1"
    assert split(pages) == {"1": 1, "2": 1}


def test_changes_of_other_models_are_neither_shown_nor_gone_back_to(pages: Pages) -> None:
    pages.lay(1, name="n")
    pages.api("PUT", "/api/models/n/labels/theirs", {"version": 1})
    pages.api("PUT", "/api/routes/n", {"split": {"1": 7}})
    other = pages.api("GET", "/api/history?kind=route&key=n")[0]["revision"]
    assert "theirs" not in words(pages.get("/traffic/m"))
    assert pages.get(f"/traffic/m/rollback/{other}").status_code == 404
    assert pages.post(f"/traffic/m/rollback/{other}").status_code == 404


def test_hostile_reasons_are_text_with_control_characters_spelled_out(pages: Pages) -> None:
    evil = "<script>alert(1)</script>\x1b[2Jbecause\u202e"
    pages.post("/traffic/m/split", weight__1=1, reason=evil)
    text = pages.get("/traffic/m").text
    assert "<script>alert" not in text and "&lt;script&gt;" in text
    assert "\\x1b[2Jbecause\\u202e" in text
    assert "\\x1b[2Jbecause\\u202e" in pages.api("GET", "/api/history")[0]["reason"]


def test_a_mirror_shows_whether_the_candidate_responds_and_predicts_the_same(
    tmp_path: Path,
) -> None:
    meters = Meters()
    meters.mirrored(("m", "2", "http"), "200", 0.004)
    meters.compared_rows(("m", "2", "scores"), 3, 1)

    async def text() -> str:
        return meters.text().decode()

    pages = Pages(tmp_path, data_metrics=text)
    pages.publish(b"one", b"two")
    pages.hold(1, 2)
    assert pages.get("/api/routes/m/mirror").status_code == 404
    pages.api("PUT", "/api/routes/m", {"split": {"1": 100}, "mirror": {"version": 2, "percent": 5}})
    counts = pages.api("GET", "/api/routes/m/mirror")
    assert counts["outputs"] == {"scores": {"agrees": 3, "differs": 1}}
    said = words(pages.get("/traffic/m"))
    assert "Mirror: 5 % of the calls are also sent to version 2" in said
    assert "1 with the code 200 ; mean time 4 ms" in said
    assert "scores 3 1 25 %" in said
