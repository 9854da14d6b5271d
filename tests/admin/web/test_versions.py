"""One version's page: what is told of it, and what can be done with it."""

from pathlib import Path

import pytest
from control.publishing import CONFIG, sha256
from workbench.conversion.reports import report

from serve.admin.api.configurations import ConfigurationDiff, LineView
from serve.admin.web.versions import Gap, folded
from serve.control.publication.publications import PublicationRequest
from serve.core.errors import TrialFailed

from .pages_scene import Pages, hidden, words

ONE = "/models/m/versions/1"


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def test_a_pushed_version_is_told_with_files_digests_and_origin(pages: Pages) -> None:
    pages.publish(b"one", ask=PublicationRequest(source="a notebook", tags={"ticket": "ML-7"}))
    answer = pages.get(ONE)
    said = words(answer)
    assert f"1/model.onnx 3 B {sha256(b'one')}" in said
    assert 'href="/api/models/m/versions/1/files/1/model.onnx"' in answer.text
    assert "Author ada" in said and "Source a notebook" in said and "ticket ML-7" in said
    assert 'backend: "onnxruntime"' in said


def test_the_configuration_is_held_against_another_versions_with_signs(pages: Pages) -> None:
    pages.publish(b"one")
    other = CONFIG.replace("max_batch_size: 8", "max_batch_size: 16")
    pages.publish(b"two", **{"config.pbtxt": other.encode()})
    answer = pages.get("/models/m/versions/2")
    said = words(answer)
    assert "Version 1 (−) compared with version 2 (+)" in said
    assert "− max_batch_size: 8" in said and "+ max_batch_size: 16" in said
    assert "Identical" not in said
    assert pages.get("/models/m/versions/2?against=99").status_code == 200
    pages.publish(b"three")
    assert "Identical to version 3" in words(pages.get(f"{ONE}?against=3"))
    for path in ("/models/m/versions/9", "/models/x/versions/1"):
        assert pages.get(path).status_code == 404


def test_a_version_of_a_plain_folder_shows_what_there_is(pages: Pages) -> None:
    pages.lay(1, 2)
    said = words(pages.get("/models/plain/versions/2"))
    assert "This version was not pushed" in said and "servegate model push" in said
    assert "Retire" not in said and "SHA-256" not in said


def test_a_version_that_failed_says_why_and_is_deleted(pages: Pages) -> None:
    pages.scene.quarantine.fails = TrialFailed("it was still loading after 300 s")
    pages.publish(b"one")
    answer = pages.get(ONE)
    said = words(answer)
    assert "it was still loading after 300 s" in said and "never published" in said
    assert 'href="/try/' not in answer.text and "permanently" in said
    answer = pages.post(f"{ONE}/retire", **_state(pages))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert pages.get(ONE).status_code == 404


def test_a_version_is_tagged_and_stays_loaded_on_request(pages: Pages) -> None:
    pages.publish(b"one")
    path = "/api/models/m/versions/1"
    pages.post(f"{ONE}/tags", name="ticket", text="<b>7</b>", **_state(pages))
    assert pages.api("GET", path)["tags"] == {"ticket": "<b>7</b>"}
    assert "<b>7</b>" not in pages.get(ONE).text
    pages.post(f"{ONE}/tags", name="ticket", **_state(pages))
    assert pages.api("GET", path)["tags"] == {}
    for keep, kept in (("yes", True), ("no", False)):
        pages.post(f"{ONE}/keep", keep=keep, **_state(pages))
        assert pages.api("GET", path)["keep"] is kept


def test_a_stale_page_tags_and_retires_nothing(pages: Pages) -> None:
    pages.publish(b"one")
    state = _state(pages)
    pages.api("PATCH", "/api/models/m/versions/1", {"tags": {"a": "1"}})
    for path, fields in (("tags", {"name": "a", "text": "2"}), ("retire", {}), ("keep", {})):
        answer = pages.post(f"{ONE}/{path}", **fields, **state)
        assert answer.headers["location"] == f"{ONE}?changed=1"
    now = pages.api("GET", "/api/models/m/versions/1")
    assert (now["tags"], now["recorded"], now["keep"]) == ({"a": "1"}, "published", False)


def test_a_version_is_retired_and_restored_with_a_reason(pages: Pages) -> None:
    pages.publish(b"one")
    assert pages.post(f"{ONE}/retire", reason="old", **_state(pages)).status_code == 303
    said = words(pages.get(ONE))
    assert "retired" in said and "Restore" in said
    pages.post(f"{ONE}/restore", **_state(pages))
    assert pages.api("GET", "/api/models/m/versions/1")["recorded"] == "published"


def test_a_version_in_use_is_not_retired_and_the_form_is_told(pages: Pages) -> None:
    pages.publish(b"one")
    pages.hold(1)
    pages.post(f"{ONE}/label", label="stable", reason="first")
    assert pages.api("GET", "/api/models/m")["labels"] == {"stable": 1}
    answer = pages.post(f"{ONE}/retire", htmx=True, **_state(pages))
    assert answer.status_code == 409 and "label 'stable'" in words(answer)


def test_the_report_of_a_conversion_is_read_as_a_page_that_runs_nothing(pages: Pages) -> None:
    pages.publish(b"one")
    assert "conversion/report.html" not in pages.get(ONE).text
    pages.publish(b"two", **{"conversion.json": b"{}"})
    assert "conversion/report.html" in pages.get("/models/m/versions/2").text
    answer = pages.get("/api/models/m/versions/2/conversion/report.html")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    pages.publish(b"three", **{"conversion.json": report().to_bytes()})
    answer = pages.get("/api/models/m/versions/3/conversion/report.html")
    assert answer.status_code == 200 and "<h1>" in answer.text
    assert "sandbox" in answer.headers["content-security-policy"]


def test_long_equal_parts_are_left_out_of_a_difference() -> None:
    signs = [" "] * 10 + ["+"] + [" "] * 10
    lines = [LineView(sign=sign, text=str(at), old=at, new=at) for at, sign in enumerate(signs)]
    shown = folded(ConfigurationDiff(model="m", old=1, new=2, same=False, lines=lines))
    assert shown == [Gap(7), *lines[7:14], Gap(7)]


def _state(pages: Pages) -> dict[str, str]:
    """The state that the page shows."""
    return {"if_match": hidden(pages.get(ONE))["if_match"]}
