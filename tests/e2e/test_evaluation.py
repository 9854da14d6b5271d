"""The demo's held-out digits, evaluated on both versions through the gateway itself."""

import csv
import json

import harness
import numpy as np
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]

CARD = json.loads((harness.ROOT / "model_repo/digits/model_card.json").read_text())


@pytest.fixture(scope="module")
def pictures(digits, tmp_path_factory):
    """The held-out rows as a folder of pictures, a folder for each digit."""
    folder = tmp_path_factory.mktemp("held-out")
    grey, labels = digits.pictures()
    for row in digits.held_out_rows():
        path = folder / str(labels[row]) / f"{row:04}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(digits.png(grey[row]))
    return folder


@pytest.fixture(scope="module")
def evaluated(gateway, pictures, tmp_path_factory):
    """What the command told of both versions, and its exported rows."""
    words = ["digits", "--dataset", str(pictures), "-a", "stable", "-b", "candidate"]
    words += ["--grpc", "--batch", "16", "--json"]
    done = evaluate(gateway, "run", *words, "--gate", "accuracy(b)>=0.5")
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout.splitlines()[-1])["evaluation"]
    out = tmp_path_factory.mktemp("rows") / "rows.csv"
    exported = evaluate(gateway, "export", page["id"], "--out", str(out))
    assert exported.returncode == 0, exported.stderr
    with out.open() as file:
        return page, list(csv.DictReader(file))


def evaluate(gateway, *words):
    env = {"SERVEGATE_ADMIN_URL": gateway.admin, "SERVEGATE_STATE": str(gateway.state)}
    return harness.servegate("eval", *words, env=env)


def test_both_versions_have_the_accuracy_of_the_model_card(evaluated):
    page, rows = evaluated
    assert (page["state"], page["done"], page["failed"], len(rows)) == ("done", 599, 0, 599)
    for name, version in (("a", "1"), ("b", "2")):
        stated = CARD["versions"][version]["held_out_correct"]
        assert sum(row[f"predicted_{name}"] == row["label"] for row in rows) == stated
        assert page["report"][name]["accuracy"]["value"] == pytest.approx(stated / 599)


def test_the_known_disagreements_are_found(gateway, digits, evaluated):
    page, _ = evaluated
    x, y = digits.held_out()
    names = [f"{row:04}.png" for row in digits.held_out_rows()]
    told = {"1": [], "2": []}
    for version, found in told.items():
        url = f"http://{gateway.http}/v2/models/digits/versions/{version}/infer"
        for start in range(0, len(x), 50):
            rows = x[start : start + 50]
            tensor = {"name": "x", "shape": rows.shape, "datatype": "FP32"}
            body = {"inputs": [tensor | {"data": rows.ravel().tolist()}]}
            answer = harness.request(url, "POST", body)[1]["outputs"][0]
            found += np.reshape(answer["data"], answer["shape"]).argmax(axis=1).tolist()
    for bucket, right, wrong in (("only-a", "1", "2"), ("only-b", "2", "1")):
        wanted = {
            name
            for name, label, one, other in zip(names, y, told[right], told[wrong], strict=True)
            if one == label != other
        }
        url = f"/api/evaluations/{page['id']}/rows?bucket={bucket}&count=200"
        found = gateway.get(url)["rows"]
        assert {row["name"].split("/")[-1] for row in found} == wanted
        assert page["report"]["buckets"].get(bucket, 0) == len(wanted)
    assert page["report"]["buckets"]["only-a"] + page["report"]["buckets"]["only-b"] > 0


def test_a_cancelled_evaluation_that_is_resumed_finds_the_same(gateway, evaluated):
    page, _ = evaluated
    body = {"model": "digits", "dataset": page["dataset"], "a": "1", "b": "2", "concurrency": 1}
    status, begun = harness.request(f"{gateway.admin}/api/evaluations", "POST", body)
    assert status == 202, begun
    url = f"{gateway.admin}/api/evaluations/{begun['id']}"
    harness.until(lambda: gateway.get(f"/api/evaluations/{begun['id']}")["done"] > 20)
    status, stopped = harness.request(f"{url}/cancel", "POST")
    assert (status, stopped["state"]) == (200, "cancelled")
    assert 20 < stopped["done"] < 599
    assert evaluate(gateway, "resume", begun["id"]).returncode == 0
    followed = evaluate(gateway, "show", begun["id"], "--follow")
    assert followed.returncode == 0, followed.stderr
    report, whole = gateway.get(f"/api/evaluations/{begun['id']}")["report"], page["report"]
    for one in (report, whole):
        for side in ("a", "b"):
            del one[side]["latency"]
    del report["gates"], whole["gates"]
    assert report == whole


def test_a_gate_that_is_not_met_is_status_7(gateway, evaluated):
    page, _ = evaluated
    met = evaluate(gateway, "gate", page["id"], "accuracy(a)>0.5")
    missed = evaluate(gateway, "gate", page["id"], "accuracy(a)>0.5", "accuracy(b).low>0.9999")
    assert met.returncode == 0
    assert missed.returncode == 7
    assert "accuracy(b).low>0.9999" in missed.stderr
    words = ["digits", "--dataset", page["dataset"], "-a", "1", "--limit", "20"]
    run = evaluate(gateway, "run", *words, "--gate", "p99<0.001us")
    assert run.returncode == 7
    assert "FAILED  p99<0.001us" in run.stdout
