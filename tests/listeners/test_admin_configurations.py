"""How versions are configured, over the admin API."""

from pathlib import Path

from listeners.admin_scene import application, assert_error, plane, play, send


def test_a_version_is_shown_with_what_it_takes_and_its_text(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    page = send(app, "GET", "/api/models/m/versions/1/configuration").json()
    assert (page["model"], page["version"], page["published"]) == ("m", 1, False)
    assert 'backend: "onnxruntime"' in page["config"]
    assert page["card"] == {"summary": "a model"}


def test_two_versions_are_held_against_each_other(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    path = "/api/models/m/versions/2/configuration/diff"
    page = play(app, lambda one: one.get(path, params={"with": 1})).json()
    assert (page["old"], page["new"], page["same"]) == (1, 2, True)
    assert {line["sign"] for line in page["lines"]} == {" "}


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    assert_error(send(app, "GET", "/api/models/m/versions/9/configuration"), 404, "unknown_version")
    assert_error(send(app, "GET", "/api/models/x/versions/1/configuration"), 404, "unknown_model")
