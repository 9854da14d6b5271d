"""The demo's held-out digits, evaluated on both versions through the gateway itself."""

import csv
import json

import harness
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]

CARD = json.loads((harness.ROOT / "model_repo/digits/model_card.json").read_text())


@pytest.fixture
def pictures(digits, tmp_path):
    folder = tmp_path / "held-out"
    grey, labels = digits.pictures()
    for row in digits.held_out_rows():
        path = folder / str(labels[row]) / f"{row:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(digits.png(grey[row]))
    return folder


def test_both_versions_have_the_accuracy_of_the_model_card_and_a_missed_gate_is_status_7(
    gateway, pictures, tmp_path
):
    env = {"SERVEGATE_ADMIN_URL": gateway.admin, "SERVEGATE_STATE": str(gateway.state)}

    def evaluate(*words):
        return harness.servegate("eval", *words, env=env)

    words = ["digits", "--dataset", str(pictures), "-a", "stable", "-b", "candidate"]
    words += ["--grpc", "--batch", "16", "--json"]
    done = evaluate("run", *words, "--gate", "accuracy(b)>=0.5")
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout.splitlines()[-1])["evaluation"]
    exported = evaluate("export", page["id"], "--out", str(tmp_path / "rows.csv"))
    assert exported.returncode == 0, exported.stderr
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert (page["state"], page["done"], page["failed"], len(rows)) == ("done", 599, 0, 599)
    for name, version in (("a", "1"), ("b", "2")):
        stated = CARD["versions"][version]["held_out_correct"]
        assert sum(row[f"predicted_{name}"] == row["label"] for row in rows) == stated
        assert page["report"][name]["accuracy"]["value"] == pytest.approx(stated / 599)
    missed = evaluate("gate", page["id"], "accuracy(a)>0.5", "accuracy(b).low>0.9999")
    assert missed.returncode == 7
    assert "accuracy(b).low>0.9999" in missed.stderr
