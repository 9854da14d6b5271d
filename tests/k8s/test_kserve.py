"""The KServe examples, read by the models of the `kserve` package, which notice what is wrong."""

import json
import subprocess
from typing import Any

import pytest

from k8s.cluster import ROOT
from k8s.rendering import Rendering

PYTHON = ROOT / ".venv-kserve" / "bin" / "python"
DRIVER = ROOT / "tests" / "k8s" / "kserve_resources.py"
EXAMPLES = ("examples/kserve/routing", "examples/kserve/loading")
PATIENCE = 120.0  # seconds; a bound


def objections(resources: list[Any]) -> list[str]:
    """What the package says of resources."""
    if not (PYTHON.parents[1] / ".packages").exists():
        pytest.fail("there is no .venv-kserve: make deps-kserve")
    done = subprocess.run(
        [str(PYTHON), "-P", str(DRIVER)],
        input=json.dumps(resources),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout)
    return said


def of_kserve(rendering: Rendering) -> list[Any]:
    return [one for one in rendering.objects if one["apiVersion"].startswith("serving.kserve.io/")]


def test_what_kserve_does_not_know_is_told(rendered: dict[str, Rendering]) -> None:
    service, runtime = sorted(of_kserve(rendered[EXAMPLES[0]]), key=lambda one: one["kind"])
    service = json.loads(json.dumps(service))
    runtime = json.loads(json.dumps(runtime))
    service["spec"]["predictor"]["model"]["storageURI"] = "s3://bucket"
    service["spec"]["predictor"]["minReplicas"] = [2]
    runtime["spec"]["containers"][0]["argv"] = ["tritonserver"]
    told = " ".join(objections([service, runtime]))
    for word in ("storageURI", "minReplicas", "argv"):
        assert word in told
