"""How versions are configured, over the admin API."""

from pathlib import Path

from admin.api.admin_scene import application, assert_error, plane, play, send


def test_a_version_is_shown_with_its_text_and_against_another(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    page = send(app, "GET", "/api/models/m/versions/1/configuration").json()
    assert (page["model"], page["version"], page["published"]) == ("m", 1, False)
    assert 'backend: "onnxruntime"' in page["config"]
    assert page["card"] == {"summary": "a model"}
    path = "/api/models/m/versions/2/configuration/diff"
    page = play(app, lambda one: one.get(path, params={"with": 1})).json()
    assert (page["old"], page["new"], page["same"]) == (1, 2, True)
    assert {line["sign"] for line in page["lines"]} == {" "}
    assert_error(send(app, "GET", "/api/models/m/versions/9/configuration"), 404, "unknown_version")
    assert_error(send(app, "GET", "/api/models/x/versions/1/configuration"), 404, "unknown_model")
