"""Flavours end to end: real Tritons that hold the same version in different forms."""

import json

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
FILE = "model.fast.onnx"


def source(folder, factor, preferred):
    """A model folder whose preferred flavour is this file."""
    pushing.source(folder, factor)
    (folder / "1" / FILE).write_bytes(preferred)
    flavour = {"name": "fast", "file": FILE, "needs": {"gpu": True}}
    page = {"format": 1, "base": True, "flavours": [flavour]}
    (folder / "flavours.json").write_text(json.dumps(page))
    return pushing.proven(folder, factor)


def files(up, name):
    """The file that each replica runs, as its Triton says."""
    found = {}
    for replica in up.get("/api/replicas"):
        port = replica["address"].split(":")[1]
        status, config = harness.request(f"http://127.0.0.1:{port}/v2/models/{name}/config")
        if status == 200:
            found[replica["name"]] = config["default_model_filename"]
    return found


def settled(up, name, **flavours):
    """The model once its replicas hold its version in these flavours."""
    wanted = {key.replace("_", "-"): value for key, value in flavours.items()}

    def shown():
        return up.get(f"/api/models/{name}")["versions"][0]

    harness.until(lambda: shown()["flavours"] == wanted, what=f"{name} in {wanted}")
    return up.get(f"/api/models/{name}")


def test_each_replica_loads_the_flavour_that_its_machine_can_run(uploading, tmp_path):
    folder = source(tmp_path / "m", 2.0, pushing.times(2.0))
    pushing.publish(uploading, folder, "several")
    model = settled(uploading, "several", local_0="base", local_1="fast")
    assert model["problems"] == []
    assert files(uploading, "several") == {"local-0": "model.onnx", "local-1": FILE}
    assert {pushing.factor_of(uploading, "several") for _ in range(8)} == {2.0}

    def shown():
        return harness.servegate("model", "show", "several", "--admin-url", uploading.admin).stdout

    # a replica that loads for another test takes no calls meanwhile
    harness.until(lambda: "local-0(base) local-1(fast)" in shown(), what="both flavours")


def test_where_the_preferred_flavour_fails_the_base_answers_and_the_model_says_why(
    uploading, tmp_path
):
    pushing.publish(uploading, source(tmp_path / "m", 2.0, pushing.times(3.0)), "lying")
    model = settled(uploading, "lying", local_0="base", local_1="base")
    (problem,) = model["problems"]
    assert "replica local-1 cannot run flavour 'fast'" in problem
    assert "golden case 0: output 'y'" in problem
    assert {pushing.factor_of(uploading, "lying") for _ in range(8)} == {2.0}
    assert set(files(uploading, "lying").values()) == {"model.onnx"}
