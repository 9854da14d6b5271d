"""The clients of the `kserve` package, in an environment of their own, against `servegate up`.

They know the Open Inference Protocol from their own definitions, not from Triton's.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import harness
import pytest
import repositories

pytestmark = [pytest.mark.triton, pytest.mark.slow]

PYTHON = harness.ROOT / ".venv-kserve" / "bin" / "python"
DRIVER = harness.ROOT / "tests" / "e2e" / "kserve_driver.py"
PATIENCE = 120.0  # seconds; a bound
KINDS = {"FP32": "FP32", "FP16": "FP16", "INT64": "INT64", "BYTES": "STRING"}
VALUES: dict[str, list[Any]] = {
    "FP32": [0.5, -1.5],
    "FP16": [0.5, -65504.0],
    "INT64": [-(2**63), 2**63 - 1],
    "BYTES": ["", "naïve \U0001f40d"],
}
READINESS = {
    "live": True,
    "ready": True,
    "model ready": True,
    "version ready": True,
    "label ready": True,
    "unknown label ready": False,
    "unknown ready": False,
}
ERRORS = {
    "unknown model": (404, "NOT_FOUND", "Request for unknown model: 'nothing' is not found"),
    "unknown version": (404, "NOT_FOUND", "Request for unknown model: 'mirror' version 9"),
    "unknown input": (400, "INVALID_ARGUMENT", "unexpected inference input 'other'"),
}
MIRROR = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb.InferenceResponse([pb.Tensor("out_" + x.name(), x.as_numpy()) for x in r.inputs()])
            for r in requests
        ]
"""


def config() -> str:
    """Every input may be left out, and has an output."""
    lines = ['backend: "python"', "version_policy { all { } }"]
    lines.append("instance_group [ { kind: KIND_CPU count: 1 } ]")
    for name, kind in KINDS.items():
        lines.append(
            f'input [ {{ name: "{name}" data_type: TYPE_{kind} dims: [ -1 ] optional: true }} ]'
        )
        lines.append(f'output [ {{ name: "out_{name}" data_type: TYPE_{kind} dims: [ -1 ] }} ]')
    return "\n".join(lines)


def asked(gateway: harness.RunningGateway, folder: Path) -> dict[str, dict[str, Any]]:
    if not (PYTHON.parents[1] / ".packages").exists():
        pytest.fail("there is no .venv-kserve: make deps-kserve")
    for version in ("1", "2"):
        (folder / "mirror" / version).mkdir(parents=True)
        (folder / "mirror" / version / "model.py").write_text(MIRROR)
    (folder / "mirror" / "config.pbtxt").write_text(config())
    repositories.serve(gateway, folder)
    gateway.put("/api/models/mirror/labels/stable", {"version": 1})
    command = [str(PYTHON), "-P", str(DRIVER), gateway.http, gateway.grpc]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    told: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return told


def answer(*kinds: str) -> dict[str, Any]:
    outputs = {f"out_{kind}": [kind, [2], VALUES[kind]] for kind in kinds}
    return {"id": "my-id", "model": "mirror", "outputs": outputs}


def test_every_question_of_both_clients_has_the_answer_of_the_protocol(
    gateway: harness.RunningGateway, tmp_path: Path
) -> None:
    said = asked(gateway, tmp_path / "models")
    for protocol, told in said.items():
        for name, is_so in READINESS.items():
            if name in told:  # only the client of REST can ask for a version or a label
                assert told[name] is is_so, (protocol, name)
        for name in ("lists", "version 1", "label"):
            assert told[name] == answer("FP32", "INT64", "BYTES"), (protocol, name)
        assert told["arrays"] == answer("FP32", "FP16", "INT64", "BYTES"), protocol
    metadata = said["grpc"]["metadata"]
    assert (metadata["model"], metadata["versions"]) == ("mirror", ["1", "2"])
    assert metadata["inputs"] == {kind: [kind, [-1]] for kind in KINDS}
    assert READINESS.keys() <= said["rest"].keys()
    for name, (status, code, words) in ERRORS.items():
        assert said["rest"][name][0] == status
        assert said["grpc"][name][0] == code
        assert words in said["grpc"][name][1]
