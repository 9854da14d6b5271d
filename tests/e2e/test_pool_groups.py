"""A group of pools over a real Triton: a model is served by whichever pool has a replica."""

import harness
import pytest
import repositories
from tritons import tritons

pytestmark = [pytest.mark.triton, pytest.mark.slow]


def hints_set(up: harness.Up, *words: str) -> str:
    done = harness.servegate("hints", "set", *words, "--admin-url", up.admin)
    assert done.returncode == 0, done.stderr
    return done.stderr


def status_of(up: harness.Up) -> int:
    path = f"http://{up.http}/v2/models/plain/infer"
    return harness.request(path, "POST", repositories.request())[0]


def test_a_model_is_served_by_the_other_pool_of_its_group(tmp_path):
    models = tmp_path / "models"
    with tritons(tmp_path, models) as address:
        repositories.python_model(models, "plain", repositories.PLAIN)
        flags = ("--triton", f"only={address}@l4", "--model-repo", str(models))
        with harness.up(tmp_path / "state", *flags) as up:
            (model,) = up.get("/api/models")
            assert (model["state"], model["pools"]) == ("failed", ["default"])
            assert model["versions"][0]["reason"] == "pool 'default' has no replica"
            assert status_of(up) == 503
            hints_set(up, "default", "--group", "vision", "--cost", "3")
            told = hints_set(up, "l4", "--group", "vision", "--cost", "1", "--most", "2")
            assert "pools of the group: default, l4" in told
            harness.until(lambda: status_of(up) == 200)
            (model,) = up.get("/api/models")
            assert (model["state"], model["pools"]) == ("ready", ["default", "l4"])
            hints_set(up, "l4", "--group", "")
            assert status_of(up) == 200  # nobody else has it
            newest = up.get("/api/history?kind=pool&key=l4")[1]["revision"]
            done = harness.servegate(
                "history", "restore", str(newest), "--yes", "--admin-url", up.admin
            )
            assert done.returncode == 0, done.stderr
            assert up.get("/api/pools/l4")["settings"]["group"] == "vision"
