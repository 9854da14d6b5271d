"""Versions among names, folders and requests that are out to confuse: calls go on as decided."""

import shutil

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
ODD = (
    ("GET", "/api/models/%00", None),
    ("GET", "/api/models/m/versions/99999999999999999999999999", None),
    ("GET", "/api/models/m/versions/1/files/..%2f..%2fcontrol.sqlite", None),
    ("GET", "/api/history/99999999999999999999999999", None),
    ("POST", "/api/history/99999999999999999999999999/rollback", None),
    ("PUT", "/api/routes/m", {"split": {str(10**30): 1}}),
    ("PUT", "/api/routes/m", {"split": {"1": -1}}),
    ("PUT", "/api/models/m/labels/1", {"version": 1}),
    ("PUT", "/api/models/m/labels/latest", {"version": 1}),
    ("PATCH", "/api/models/m/versions/1", {"labels": ["x"] * 10_000 + ["\0"]}),
    ("PATCH", "/api/models/m/versions/1", {"tags": {"": "x"}}),
    ("POST", "/api/gc", {"keep": -1}),
    ("POST", "/api/gc", {"grace": "soon"}),
    ("POST", "/api/uploads", {"model": "n" * 256, "files": []}),
    ("POST", "/api/uploads", {"model": "m", "files": [{"path": "../1/x", "size": -1}]}),
    ("POST", "/api/uploads/../commit", {}),
    ("DELETE", "/api/uploads/%2e%2e", None),
)


@pytest.fixture(scope="module")
def up(uploading, tmp_path_factory):
    pushing.published(uploading, tmp_path_factory.mktemp("hostile") / "one", "m", 2.0)
    return uploading


def test_a_plain_folder_of_a_published_models_name_takes_no_calls_and_is_told(up, tmp_path):
    pushing.source(tmp_path / "m", 9.0).rename(up.models / "m")
    harness.until(
        lambda: any("rename the folder" in one for one in up.get("/api/models/m")["problems"]),
        what="the problem is told",
    )
    for _ in range(20):  # the replica is looked at again and again meanwhile
        assert pushing.factor_of(up, "m") == 2.0
        assert [one["state"] for one in up.get("/api/models/m")["versions"]] == ["ready"]
    shutil.rmtree(up.models / "m")
    harness.until(lambda: not up.get("/api/models/m")["problems"], what="the problem is gone")
    assert pushing.factor_of(up, "m") == 2.0


def test_a_model_that_is_called_like_anothers_name_in_triton_is_a_model_of_its_own(up, tmp_path):
    pushing.published(up, tmp_path / "a", "twin", 3.0)
    pushing.brought(up, pushing.source(tmp_path / "b", 4.0, batch=16), "twin")
    taken = pushing.state(up, "twin", 2)["physical"]
    assert taken.startswith("twin--")
    pushing.published(up, tmp_path / "c", taken, 5.0)
    assert pushing.state(up, taken, 1)["physical"].startswith(f"{taken}--")
    found = [pushing.factor_of(up, "twin", "1"), pushing.factor_of(up, "twin", "2")]
    assert [*found, pushing.factor_of(up, taken)] == [3.0, 4.0, 5.0]


def test_an_odd_request_is_refused_with_a_reason_and_changes_nothing(up):
    before = up.get("/api/routes/m")
    for method, path, body in ODD:
        status, answer = harness.request(up.admin + path, method, body)
        assert 400 <= status < 500, (path, answer)
        assert answer["code"] and answer["what"], path
    assert up.get("/api/routes/m") == before
    assert pushing.factor_of(up, "m") == 2.0
