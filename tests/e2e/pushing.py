"""Versions to push: small ONNX models whose answers tell which one answered; and contracts."""

import hashlib
import json
import urllib.request
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from harness import RunningGateway, request, servegate, until
from triton.onnx_models import node, onnx_file, tensor

from serve.tensors.contracts import Case, write_contract

CONFIG = """
backend: "onnxruntime"
max_batch_size: {batch}
input [{{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }}]
instance_group [{{ count: 1 kind: KIND_CPU }}]
{more}
"""
ROW = [1.0, 2.0, 3.0, 4.0]


def times(factor: float) -> bytes:
    x, y = (tensor(name, "FP32", "batch", 4) for name in "xy")
    constants = {"factor": np.array([factor], np.float32)}
    return onnx_file([x], [y], node("Mul", "x factor", "y"), constants=constants)


def source(folder: Path, factor: float, *, batch: int = 8, more: str = "") -> Path:
    """A model folder to push; of one instance, as each is a process that takes time to start."""
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(times(factor))
    (folder / "config.pbtxt").write_text(CONFIG.format(batch=batch, more=more))
    return folder


def python(folder: Path, code: str, *, more: str = "") -> Path:
    """A model folder to push whose model is this code."""
    source(folder, 1.0, more=more)
    (folder / "1" / "model.onnx").unlink()
    (folder / "1" / "model.py").write_text(code)
    config = (folder / "config.pbtxt").read_text().replace("onnxruntime", "python")
    (folder / "config.pbtxt").write_text(config)
    return folder


def proven(folder: Path, factor: float) -> Path:
    """The model folder with a contract: a golden case that holds for this factor."""
    x = np.array([ROW], np.float32)
    for path, data in write_contract([Case({"x": x}, {"y": x * np.float32(factor)})]).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def golden(path: Path, factor: float) -> Path:
    x = np.array([ROW], np.float32)
    np.savez(path, **{"input/x": x, "output/y": x * np.float32(factor)})
    return path


def push(up: RunningGateway, folder: Path, name: str, *flags: str, env=None):
    """`servegate model push`, run to its end; gives the process."""
    where = ("--admin-url", up.admin)
    return servegate("model", "push", str(folder), name, *where, *flags, env=env)


def pushed(up: RunningGateway, folder: Path, name: str, *flags: str) -> dict:
    done = push(up, folder, name, "--json", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def infer(up: RunningGateway, name: str, version: str = "") -> tuple[int, list[float] | str]:
    path = f"/v2/models/{name}" + (f"/versions/{version}" if version else "") + "/infer"
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}]}
    status, answer = request(f"http://{up.http}{path}", "POST", body)
    return status, answer["outputs"][0]["data"] if status == 200 else answer


def factor_of(up: RunningGateway, name: str, version: str = "") -> float:
    status, answer = infer(up, name, version)
    assert status == 200, answer
    return answer[0] / ROW[0]


def clients(up: RunningGateway):
    """Triton's own clients of the data ports, each with its module."""
    return (
        (triton_http.InferenceServerClient(up.http), triton_http),
        (triton_grpc.InferenceServerClient(up.grpc), triton_grpc),
    )


def asked(client, module, name: str, version: str = "") -> tuple[str, str, float]:
    """One row through one of those clients: which model and version answers, and its factor."""
    tensor = module.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([ROW], np.float32))
    answer = client.infer(name, [tensor], model_version=version)
    reply = answer.get_response()
    if isinstance(reply, dict):
        named, number = reply["model_name"], reply["model_version"]
    else:
        named, number = reply.model_name, reply.model_version
    return named, number, float(answer.as_numpy("y")[0, 0])


def started(up: RunningGateway, name: str, version: int) -> int:
    """The calls that the Tritons have counted since they have started this version."""
    count = 0
    for replica in up.get("/api/replicas"):
        host, http = replica["address"].split(":")[:2]
        path = f"http://{host}:{http}/v2/models/{name}/versions/{version}/stats"
        count += request(path)[1]["model_stats"][0]["inference_count"]
    assert count > 0
    return count


def state(up: RunningGateway, name: str, number: int) -> dict:
    status, answer = request(f"{up.admin}/api/models/{name}/versions/{number}")
    assert status == 200, answer
    return answer


def is_everywhere(up: RunningGateway, name: str, number: int) -> bool:
    pool = request(f"{up.admin}/api/models/{name}")[1]["pool"]
    replicas = request(f"{up.admin}/api/replicas?readings=false")[1]
    alive = {one["name"] for one in replicas if one["pool"] == pool and one["state"] == "up"}
    return bool(alive) and alive <= set(state(up, name, number)["replicas"])


def wait_state(up: RunningGateway, name: str, number: int, *states: str) -> dict:
    until(lambda: state(up, name, number)["state"] in states, what=f"{name}@{number} is {states}")
    return state(up, name, number)


def upload(up: RunningGateway, name: str, data: dict[str, bytes], **more: str) -> str:
    """Upload files by their paths, without a command, which takes a second to start; the id."""
    digests = {path: hashlib.sha256(blob).hexdigest() for path, blob in data.items()}
    files = [
        {"path": path, "size": len(blob), "sha256": digests[path]} for path, blob in data.items()
    ]
    url = f"{up.admin}/api/uploads"
    status, begun = request(url, "POST", {"model": name, "files": files, **more})
    assert status == 200, begun
    blobs = {digests[path]: blob for path, blob in data.items()}
    for one in begun["missing"]:
        there = f"{url}/{begun['id']}/blobs/{one['sha256']}"
        headers = {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
        sent = urllib.request.Request(there, blobs[one["sha256"]], headers, method="PATCH")
        urllib.request.urlopen(sent, timeout=30).close()
    return begun["id"]


def files_of(folder: Path) -> dict[str, bytes]:
    """What is in a folder, by path."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def publish(up: RunningGateway, folder: Path, name: str, **ask: object) -> int:
    identity = upload(up, name, files_of(folder))
    status, done = request(f"{up.admin}/api/uploads/{identity}/commit", "POST", ask)
    assert status == 202, done
    return done["version"]


def published(up: RunningGateway, folder: Path, name: str, factor: float, **ask: object) -> int:
    """Push a small model so, and wait until it is ready."""
    return brought(up, source(folder, factor), name, **ask)


def brought(up: RunningGateway, folder: Path, name: str, **ask: object) -> int:
    """Push a folder so, and wait for every replica and for all that was asked."""
    version = publish(up, folder, name, **ask)
    wait_state(up, name, version, "ready", "serving")
    until(lambda: is_everywhere(up, name, version), what=f"{name}@{version} is on every replica")
    if ask:
        until(lambda: not any(state(up, name, version)[one] for one in ask))
    return version
