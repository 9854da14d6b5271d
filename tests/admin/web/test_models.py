"""The list of models, and one model's page."""

import json
from pathlib import Path

import pytest

from serve.control.publication.publications import PublicationRequest

from .pages_scene import Pages, hidden, words


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def test_without_models_the_page_names_the_first_command(pages: Pages, tmp_path: Path) -> None:
    said = words(pages.get("/"))
    assert "No models yet" in said and "servegate model push" in said
    assert "Replicas up 1 of 2" in said and "1 of 2 replicas does not respond" in said
    assert "b at 127.0.0.1" in said and "refused" in said
    answer = pages.get("/models/nothing")
    assert answer.status_code == 404 and "nothing" in words(answer)
    (tmp_path / "other").mkdir()
    pages = Pages(tmp_path / "other", publishes=False)
    assert "push" not in words(pages.get("/"))
    assert "does not accept uploads" in words(pages.get("/upload"))


def test_every_model_is_told_with_its_state_and_shares(pages: Pages) -> None:
    pages.publish(b"one", b"two")
    pages.hold(1, 2)
    pages.api("PUT", "/api/routes/m", {"split": {"1": 3, "2": 1}})
    pages.api("PUT", "/api/models/m/labels/stable", {"version": 1})
    answer = pages.get("/")
    said = words(answer)
    assert "m ready" in said and "stable → 1" in said
    assert "version 1 75.0 %" in said and "version 2 25.0 %" in said
    assert 'aria-label="Traffic split: version 1 75.0 %, version 2 25.0 %"' in answer.text


def test_a_models_page_tells_versions_signature_and_what_is_next(pages: Pages) -> None:
    pages.publish(b"one", b"two", ask=PublicationRequest(labels=("new",)))
    pages.hold(1, 2)
    answer = pages.get("/models/m")
    said = words(answer)
    assert "Inputs" in said and "x FP32 [any, 4]" in said and "y FP32 [any, 2]" in said
    assert "Compare" in said and "None recorded; clients send tensors" in said
    for path in ("/try/m", "/traffic/m", "/models/m/versions/1", "/try/m?a=2"):
        assert f'href="{path}"' in answer.text


def test_the_recorded_preprocessing_is_told_in_words(pages: Pages) -> None:
    steps = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32", "resize": [2, 2]}
    document = json.dumps({"inputs": {"x": steps}}).encode()
    pages.publish(b"one", **{"preprocessing.json": document})
    said = words(pages.get("/models/m"))
    assert "Convert to greyscale Resize to 2 × 2" in said and "Convert to FP32" in said


def test_an_objective_is_set_with_a_reason_but_not_by_a_stale_page(pages: Pages) -> None:
    def objective() -> str:
        return str(pages.api("GET", "/api/models/m")["objective"])

    pages.publish(b"one")
    form = {**hidden(pages.get("/models/m")), "pool": "default"}
    path = "/models/m/settings"
    wrong = pages.post(path, htmx=True, objective="fast", pool="default")
    assert wrong.status_code == 422 and "<html" not in wrong.text
    assert "is not an objective" in words(wrong)
    answer = pages.post(path, **form, objective="p99<50ms", reason="promised")
    assert (answer.status_code, answer.headers["location"]) == (303, "/models/m")
    assert objective() == "p99<50ms"
    assert pages.api("GET", "/api/history")[0]["reason"] == "promised"
    stale = pages.post(path, **form, objective="p99<9ms")
    assert stale.headers["location"] == "/models/m?changed=1"
    assert "Your change was not saved" in words(pages.get("/models/m?changed=1"))
    assert objective() == "p99<50ms"


def test_what_models_say_of_themselves_is_only_text(pages: Pages) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    card = json.dumps({"summary": evil, evil: {"deep": [evil, {"a": evil}]}}).encode()
    pages.publish(b"one", **{"model_card.json": card})
    for path in ("/models/m", "/models/m/versions/1"):
        text = pages.get(path).text
        assert "<script>alert" not in text and "<img src=x" not in text
        assert "&lt;script&gt;alert(1)" in text
