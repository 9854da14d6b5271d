"""Pages of models: the list, one model, one version, and its traffic."""

import json
from pathlib import Path

import pytest
from control.publishing import CONFIG, sha256
from workbench.conversion.reports import report

from serve.admin.api.configurations import ConfigurationDiff, LineView
from serve.admin.web.versions import Gap, folded
from serve.control.publication.publications import PublicationRequest
from serve.core.errors import TrialFailed
from serve.telemetry import Meters

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


# --- one version ---------------------------------------------------------------------------------


ONE = "/models/m/versions/1"


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


# --- traffic: split, labels, history, and the way back -------------------------------------------


@pytest.fixture
def traffic(pages: Pages) -> Pages:
    """Two versions are ready."""
    pages.publish(b"one", b"two")
    pages.hold(1, 2)
    return pages


def split(traffic: Pages) -> dict[str, int]:
    found: dict[str, int] = traffic.api("GET", "/api/routes/m")["split"]
    return found


def test_the_forms_weights_become_the_split(traffic: Pages) -> None:
    form = {"weight__1": 3, "weight__2": 1, "reason": "slowly", **hidden(traffic.get("/traffic/m"))}
    answer = traffic.post("/traffic/m/split", **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/traffic/m")
    assert split(traffic) == {"1": 3, "2": 1}
    said = words(traffic.get("/traffic/m"))
    assert "version 1 75.0 %" in said and "slowly" in said and "split.1 — → 3" in said


def test_a_stale_page_changes_no_split_and_shows_the_new_one(traffic: Pages) -> None:
    form = hidden(traffic.get("/traffic/m"))
    traffic.api("PUT", "/api/routes/m", {"split": {"2": 100}})
    answer = traffic.post("/traffic/m/split", htmx=True, weight__1=1, **form)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/traffic/m?changed=1")
    assert split(traffic) == {"2": 100}
    said = words(traffic.get("/traffic/m?changed=1"))
    assert "Your change was not saved" in said and "version 2 100.0 %" in said


def test_what_is_no_share_is_refused(traffic: Pages) -> None:
    before = split(traffic)
    for weight in ("-1", "1.5", "x", "", "1e3", "99999999", "٣", "0"):
        answer = traffic.post("/traffic/m/split", htmx=True, weight__1=weight)
        assert answer.status_code == 422 and split(traffic) == before, weight
    traffic.publish(b"three")
    answer = traffic.post("/traffic/m/split", htmx=True, weight__3=1)
    assert answer.status_code == 409 and "version 3" in words(answer), "it is not ready"
    assert traffic.get("/traffic/nothing").status_code == 404


def test_labels_are_made_moved_and_removed(traffic: Pages) -> None:
    seen = []
    for version in (1, 2):
        traffic.post("/traffic/m/labels", label="stable", version=version, reason="why")
        seen.append(traffic.api("GET", "/api/models/m")["labels"])
    assert "stable points to version 2" in words(traffic.get("/traffic/m"))
    traffic.post("/traffic/m/labels/remove", label="stable")
    assert seen == [{"stable": 1}, {"stable": 2}]
    assert traffic.api("GET", "/api/models/m")["labels"] == {}


def test_going_back_shows_what_changes_and_then_changes_it(traffic: Pages) -> None:
    for weights in ({"1": 100}, {"1": 50, "2": 50}):
        traffic.api("PUT", "/api/routes/m", {"split": weights})
    newest, *_, first = [one["revision"] for one in traffic.api("GET", "/api/history?kind=route")]
    path = f"/traffic/m/rollback/{first}"
    asked = traffic.get(path)
    assert f'href="{path}"' in traffic.get("/traffic/m").text
    assert f"rollback/{newest}" not in traffic.get("/traffic/m").text
    assert "split.1 50 → 100" in words(asked) and "split.2 50 → —" in words(asked)
    answer = traffic.post(path, reason="worse", **hidden(asked))
    assert answer.headers["location"] == "/traffic/m"
    assert split(traffic) == {"1": 100}
    assert f"restored revision {first}: worse" in words(traffic.get("/traffic/m"))
    traffic.api("PUT", "/api/routes/m", {"split": {"1": 1, "2": 1}})
    stale = traffic.post(path, **hidden(asked))
    assert stale.headers["location"] == "/traffic/m?changed=1"
    assert split(traffic) == {"1": 1, "2": 1}


def test_changes_of_other_models_are_neither_shown_nor_gone_back_to(traffic: Pages) -> None:
    traffic.lay(1, name="n")
    traffic.api("PUT", "/api/models/n/labels/theirs", {"version": 1})
    traffic.api("PUT", "/api/routes/n", {"split": {"1": 7}})
    other = traffic.api("GET", "/api/history?kind=route&key=n")[0]["revision"]
    assert "theirs" not in words(traffic.get("/traffic/m"))
    assert traffic.get(f"/traffic/m/rollback/{other}").status_code == 404
    assert traffic.post(f"/traffic/m/rollback/{other}").status_code == 404


def test_hostile_reasons_are_text_with_control_characters_spelled_out(traffic: Pages) -> None:
    evil = "<script>alert(1)</script>\x1b[2Jbecause\u202e"
    traffic.post("/traffic/m/split", weight__1=1, reason=evil)
    text = traffic.get("/traffic/m").text
    assert "<script>alert" not in text and "&lt;script&gt;" in text
    assert "\\x1b[2Jbecause\\u202e" in text
    assert "\\x1b[2Jbecause\\u202e" in traffic.api("GET", "/api/history")[0]["reason"]


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
    pages.api("PUT", "/api/routes/m", {"split": {"1": 100}, "mirror": {}})
    assert pages.api("GET", "/api/routes/m")["mirror"] is None
