"""From a try to a golden case of a published version, and from the command line; real Tritons."""

import json
import threading

import harness
import pushing
import pytest
from trying_scene import Shell, offered, tried

pytestmark = [pytest.mark.triton, pytest.mark.slow]
ROW = {"x": offered("json", [pushing.ROW], "row.json")}
CONTRACT = "/api/models/m/versions/1/contract"


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1")
    flags += ("--contract-interval", "2", "--quarantine", "off")
    with harness.up(folder / "state", *flags) as running:
        pushing.published(running, folder / "one", "m", 2.0)
        pushing.published(running, folder / "two", "m", 3.0, labels=["candidate"])
        yield running


def save(up, one, **body):
    return harness.request(f"{up.admin}/api/tries/{one['id']}/contract", "POST", body)


def cases(up):
    return up.get(CONTRACT)["cases"]


def test_pushes_at_once_while_garbage_is_collected_are_all_published_and_one_has_the_label(
    up, tmp_path
):
    factors = {number: float(number) for number in range(2, 6)}
    for number, factor in factors.items():
        pushing.source(tmp_path / str(number), factor)
    done = {}

    def push(number):
        flags = ("--label", "best", "--wait", "--json")
        done[number] = pushing.push(up, tmp_path / str(number), "busy", *flags)

    pushes = [threading.Thread(target=push, args=(number,)) for number in factors]
    for thread in pushes:
        thread.start()
    while any(thread.is_alive() for thread in pushes):
        status, answer = harness.request(f"{up.admin}/api/gc", "POST", {"keep": 0, "grace": 0})
        assert status == 200, answer
        pushes[0].join(0.05)
    versions = up.get("/api/models/busy")["versions"]
    assert [one["version"] for one in versions] == [1, 2, 3, 4]
    assert {pushing.state(up, "busy", n)["recorded"] for n in range(1, 5)} == {"published"}
    labels = up.get("/api/models/busy")["labels"]
    assert list(labels) == ["best"]
    assert pushing.state(up, "busy", labels["best"])["state"] == "serving"
    for number in (1, labels["best"]):
        assert pushing.factor_of(up, "busy", str(number)) in factors.values()


def test_an_answer_becomes_a_golden_case_that_is_listed_and_taken_away(up) -> None:
    one = tried(up, "m", a="1", b="candidate", inputs=ROW)
    assert [side["version"] for side in one["sides"]] == ["1", "2"]
    status, saved = save(up, one, side="a", name="a row", atol=0.001)
    assert status == 201, saved
    assert (saved["name"], saved["added"], saved["atol"]) == ("a row", True, 0.001)
    assert saved["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
    shown = up.get(CONTRACT)
    assert shown["cases"] == [saved]
    assert list(shown["replicas"].values()) == [""]
    (example,) = up.get("/api/models/m/examples?version=1")
    assert (example["name"], example["version"]) == ("a row", 1)
    again = tried(up, "m", a="1", inputs={"": offered("example", name=example["id"])})
    assert again["sides"][0]["outputs"] == one["sides"][0]["outputs"]
    (revision,) = up.get("/api/history?kind=contract")
    assert (revision["kind"], revision["key"]) == ("contract", "m:1")
    url = f"{up.admin}{CONTRACT}/{saved['id']}"
    assert harness.request(url, "DELETE")[0] == 204
    assert harness.request(url, "DELETE")[0] == 404
    assert cases(up) == []


def test_the_blobs_of_an_added_case_outlive_a_collection_of_garbage(up) -> None:
    one = tried(up, "m", a="1", inputs=ROW)
    status, saved = save(up, one, name="kept")
    assert status == 201, saved
    body = {"keep": 10, "grace": 0.0}
    assert harness.request(f"{up.admin}/api/gc", "POST", body)[0] == 200
    assert cases(up) == [saved]
    assert harness.request(f"{up.admin}{CONTRACT}/{saved['id']}", "DELETE")[0] == 204
    status, collected = harness.request(f"{up.admin}/api/gc", "POST", body)
    assert len([one for one in collected["items"] if one["kind"] == "blob"]) == 2


def test_compare_shows_both_answers_and_fails_when_they_differ_too_much(up, tmp_path) -> None:
    row = tmp_path / "row.json"
    row.write_text(json.dumps([pushing.ROW]))
    words = ("compare", "m@1", "m:candidate", "--input", f"x=@{row}", "--admin-url", up.admin)
    fine = harness.servegate(*words, "--fail-if", "max_abs>5", "--via", "grpc")
    assert fine.returncode == 0, fine.stderr
    lines = fine.stdout.splitlines()
    assert lines[0] == "output\t\tm@1\tm@2"
    assert lines[1] == "y\t\tFP32 [1, 4]: 2, 4, 6, 8\tFP32 [1, 4]: 3, 6, 9, 12"
    assert f"stored: {up.admin}/runs/" in fine.stderr
    failed = harness.servegate(*words, "--fail-if", "max_abs>0.01", "--json")
    assert failed.returncode == 7, failed.stderr
    assert json.loads(failed.stdout)["difference"]["y"]["max_abs"] == 4
    assert "max_abs is 4" in failed.stderr
    absent = harness.servegate(*words[:2], "m@9", *words[3:])
    assert absent.returncode == 7


def test_snippets_read_the_key_where_one_is_needed(up, tmp_path) -> None:
    wide = pushing.publish(up, pushing.source(tmp_path / "wide", 2.0, batch=512), "wide")
    pushing.wait_state(up, "wide", wide, "ready", "serving")
    made = harness.servegate("key", "create", "--role", "admin", "--admin-url", up.admin, "--json")
    assert made.returncode == 0, made.stderr
    secret = json.loads(made.stdout)["key"]
    headers = {"authorization": f"Bearer {secret}"}
    for rows, via in ((1, "http"), (400, "grpc")):
        inputs = {"x": offered("json", [pushing.ROW] * rows)}
        body = {"model": "wide", "a": "1", "via": via, "inputs": inputs}
        status, one = harness.request(f"{up.admin}/api/tries", "POST", body, **headers)
        assert status == 201, one
        assert one["sides"][0]["error"] is None, one
        url = f"{up.admin}/api/tries/{one['id']}/snippets"
        status, found = harness.request(url, **headers)
        shell = Shell(tmp_path / via, SERVEGATE_KEY=secret)
        for each in found:
            assert secret not in each["text"]
            assert ("/api/tries/" in each["text"]) == (rows > 1)
            assert shell.run(each["language"], each["text"])
