"""Any valid Triton repository is served; what cannot be served says why and harms nothing else."""

import shutil

import harness
import pytest
import repositories

pytestmark = [pytest.mark.triton, pytest.mark.slow]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A repository with a bit of everything."""
    folder = tmp_path_factory.mktemp("mixed")
    models = folder / "models"
    shutil.copytree(harness.ROOT / "model_repo" / "digits", models / "digits")
    repositories.python_model(models, "plain", repositories.PLAIN, versions=(1, 2, 3))
    repositories.python_model(models, "broken", repositories.BROKEN)
    repositories.ensemble(models, "chain", "plain", "plain")
    shutil.copytree(harness.ROOT / "model_repo" / "digits" / "1", models / "bare" / "1")
    (models / "typo" / "1").mkdir(parents=True)
    (models / "typo" / "config.pbtxt").write_text('backend: "python"\nmax_batchsize: 8\n')
    (models / "empty").mkdir()
    (models / "unknown" / "1").mkdir(parents=True)
    (models / "unknown" / "config.pbtxt").write_text('backend: "nonesuch"\nmax_batch_size: 1\n')
    with harness.up(folder / "state", "--model-repo", str(models)) as up:
        yield up, models


def infer(up, model, version=""):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
    return harness.request(f"http://{up.http}{path}", "POST", repositories.request())


def test_python_models_onnx_models_ensembles_and_models_without_configuration_are_served(mixed):
    up, _ = mixed
    states = {model["name"]: model["state"] for model in up.get("/api/models")}
    for name in ("digits", "plain", "chain", "bare"):
        assert states[name] == "ready", up.get(f"/api/models/{name}")["problems"]
    assert infer(up, "plain")[1]["outputs"][0]["data"] == [1.0, 2.0]
    assert infer(up, "chain")[1]["outputs"][0]["data"] == [1.0, 2.0]
    status, metadata = harness.request(f"http://{up.http}/v2/models/bare")
    assert status == 200 and metadata["inputs"][0]["name"] == "x"


def test_the_version_policy_says_which_versions_are_served(mixed):
    up, _ = mixed
    versions = {v["version"]: v["state"] for v in up.get("/api/models/plain")["versions"]}
    assert versions == {1: "not wanted", 2: "not wanted", 3: "ready"}
    assert infer(up, "plain")[1]["model_version"] == "3"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("broken", "this model cannot start"),
        ("typo", "line 2"),
        ("empty", "no version folder"),
        ("unknown", "nonesuch"),
    ],
)
def test_a_model_that_cannot_be_served_says_why(mixed, model, reason):
    up, _ = mixed
    status = up.get(f"/api/models/{model}")
    assert status["state"] == "failed"
    assert any(reason in problem for problem in status["problems"]), status["problems"]
    assert infer(up, model)[0] in (404, 503)


def test_a_version_that_appears_in_the_folder_is_loaded_and_one_that_goes_is_not_called(mixed):
    up, models = mixed
    shutil.copytree(models / "plain" / "3", models / "plain" / "4")
    harness.until(lambda: infer(up, "plain")[1].get("model_version") == "4")
    shutil.rmtree(models / "plain" / "4")
    harness.until(lambda: infer(up, "plain")[1].get("model_version") == "3")


def test_a_model_whose_folder_appears_is_served_and_one_whose_folder_goes_is_unknown(mixed):
    up, models = mixed
    repositories.python_model(models, "late", repositories.PLAIN)
    harness.until(lambda: infer(up, "late")[0] == 200)
    shutil.rmtree(models / "late")
    harness.until(lambda: infer(up, "late")[0] == 404)
    harness.until(lambda: "late" not in up.get("/api/replicas")[0]["held"])


def test_running_tritons_are_served_without_a_repository_and_with_one(mixed, tmp_path):
    up, models = mixed
    address = up.get("/api/replicas")[0]["address"]
    with harness.up(tmp_path / "a", "--triton", address) as front:
        served = {model["name"]: model["state"] for model in front.get("/api/models")}
        assert served["plain"] == "ready" and served["digits"] == "ready"
        assert infer(front, "plain")[1]["model_version"] == "3"
        assert "triton-0" in harness.servegate("replica", "ls", "--admin-url", front.admin).stdout
    with harness.up(tmp_path / "b", "--triton", address, "--model-repo", str(models)) as front:
        assert infer(front, "plain")[0] == 200
        assert front.get("/api/models/typo")["state"] == "failed"
