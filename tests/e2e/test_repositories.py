"""Any valid Triton repository is served; what cannot be served says why and harms nothing else."""

import shutil

import harness
import pytest
import repositories

pytestmark = [pytest.mark.triton, pytest.mark.slow]


FAILING = {
    "broken": "this model cannot start",
    "typo": "line 2",
    "empty": "no version folder",
    "unknown": "nonesuch",
}


@pytest.fixture(scope="module")
def served(gateway, tmp_path_factory):
    models = tmp_path_factory.mktemp("mixed")
    repositories.python_model(models, "plain", repositories.PLAIN, versions=(1, 3))
    repositories.python_model(models, "broken", repositories.BROKEN)
    repositories.ensemble(models, "chain", "plain", "plain")
    shutil.copytree(harness.ROOT / "model_repo" / "digits" / "1", models / "bare" / "1")
    (models / "typo" / "1").mkdir(parents=True)
    (models / "typo" / "config.pbtxt").write_text('backend: "python"\nmax_batchsize: 8\n')
    (models / "empty").mkdir()
    (models / "unknown" / "1").mkdir(parents=True)
    (models / "unknown" / "config.pbtxt").write_text('backend: "nonesuch"\nmax_batch_size: 1\n')
    repositories.serve(gateway, models, failing=FAILING)
    return gateway


def infer(up, model, version=""):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
    return harness.request(f"http://{up.http}{path}", "POST", repositories.request())


def test_python_models_onnx_models_ensembles_and_models_without_configuration_are_served(served):
    assert infer(served, "plain")[1]["outputs"][0]["data"] == [1.0, 2.0]
    assert infer(served, "chain")[1]["outputs"][0]["data"] == [1.0, 2.0]
    status, metadata = harness.request(f"http://{served.http}/v2/models/bare")
    assert status == 200 and metadata["inputs"][0]["name"] == "x"


def test_a_model_that_cannot_be_served_says_why(served):
    for model, reason in FAILING.items():
        problems = served.get(f"/api/models/{model}")["problems"]
        assert any(reason in problem for problem in problems), (model, problems)
        assert infer(served, model)[0] in (404, 503)


def test_a_version_or_a_model_that_appears_is_served_and_one_that_goes_is_called_no_more(
    served, tmp_path
):
    repositories.python_model(tmp_path / "new", "late", repositories.PLAIN)
    repositories.serve(served, tmp_path / "new")
    assert infer(served, "late")[1]["model_version"] == "1"
    late = served.models / "late"
    shutil.copytree(late / "1", tmp_path / "2")
    (tmp_path / "2").rename(late / "2")
    harness.until(lambda: infer(served, "late")[1].get("model_version") == "2")
    shutil.rmtree(late / "2")
    harness.until(lambda: infer(served, "late")[1].get("model_version") == "1")
    shutil.rmtree(late)
    harness.until(lambda: infer(served, "late")[0] == 404)
    harness.until(lambda: "late" not in served.get("/api/replicas")[0]["held"])


def test_running_tritons_are_served_without_a_repository_and_with_one(served, tmp_path):
    models = served.models
    address = served.get("/api/replicas")[0]["address"]
    with harness.up(tmp_path / "a", "--triton", address) as front:
        states = {model["name"]: model["state"] for model in front.get("/api/models")}
        assert states["plain"] == "ready" and states["digits"] == "ready"
        assert infer(front, "plain")[1]["model_version"] == "3"
        assert "triton-0" in harness.servegate("replica", "ls", "--admin-url", front.admin).stdout
    with harness.up(tmp_path / "b", "--triton", address, "--model-repo", str(models)) as front:
        assert infer(front, "plain")[0] == 200
        assert front.get("/api/models/typo")["state"] == "failed"
