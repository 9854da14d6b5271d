"""What is done where the plan will serve: built by trtexec, asked through that image's own Triton.

`python3 onsite.py KIT`, with nothing but Python's standard library, for it runs in Triton's image
and knows nothing of Servegate. A kit is a folder:

| file                              | from | what                                                  |
|-----------------------------------|------|-------------------------------------------------------|
| `kit.json`                        | us   | name, words of trtexec and Triton, heads of the cases |
| `model.onnx`, `config.pbtxt`      | us   | what the plan is made of, and how Triton serves it    |
| `case-N.body`                     | us   | the golden inputs, each the whole body of a request   |
| `model.plan`, `layers.json`       | here | the plan, and what it computes in                     |
| `answer-N.body`                   | here | what the plan answered, each the whole body of a reply|
| `built.json`                      | here | the facts; written last, so without it nothing counts |

Whether the answers are right is judged where the golden outputs are: `servegate convert trt`.
"""

import ctypes
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HEAD_LENGTH = "Inference-Header-Content-Length"
PLAN, LAYERS, BUILT = "model.plan", "layers.json", "built.json"
_TAG, _HEADER = b"ftrt", 28  # of a plan; its version of TensorRT is in the last four bytes
_LOOPBACK = "127.0.0.1"
_STARTING, _ASKING = 600.0, 120.0  # seconds
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
_NAME_LENGTH = 256

Device = tuple[str, str]  # compute capability, name


class Failed(Exception):
    """A step on the way; the sentence is for people."""


def first_device(load: Callable[[str], Any] = ctypes.CDLL) -> Device:
    """Compute capability (`9.0`) and name of the first GPU, told by its driver; `Failed` if none.

    Source: cuDeviceGetAttribute of the CUDA driver API.
    """
    try:
        cuda = load("libcuda.so.1")
    except OSError as error:
        raise Failed(f"there is no NVIDIA driver: {error}") from error
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_LENGTH)
    numbers = (ctypes.c_int(), ctypes.c_int())
    codes = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)]
    codes.append(cuda.cuDeviceGetName(name, _NAME_LENGTH, device))
    for number, attribute in zip(numbers, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
        codes.append(cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device))
    if any(codes):
        raise Failed(f"the driver reports no GPU: CUDA error {next(filter(None, codes))}")
    return f"{numbers[0].value}.{numbers[1].value}", name.value.decode(errors="replace")


def this_platform() -> str:
    """The system and processor that a plan is built for, such as `linux-x86_64`."""
    return f"{platform.system().lower()}-{platform.machine()}"


def version_of(plan: Path) -> str:
    """The version of TensorRT in a plan's header, such as `10.13.2.6`; `Failed` without one."""
    with plan.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(_TAG):
        raise Failed("trtexec did not write a valid plan")
    return ".".join(str(byte) for byte in header[24:28])


def build(words: Sequence[str], plan: Path) -> float:
    """Run trtexec; the seconds that it took. `Failed` unless it ends well and leaves a plan."""
    began = time.monotonic()
    code = subprocess.run(words, check=False).returncode
    if code or not plan.is_file():
        raise Failed(f"trtexec failed with exit status {code}; its output is above")
    return time.monotonic() - began


def ask(
    repository: Path, name: str, triton: Sequence[str], cases: Sequence[tuple[bytes, int]]
) -> list[tuple[bytes, int]]:
    """The answers of the model in this repository, through a Triton that is started for it.

    A case and an answer are a body and the length of its head.
    """
    port = _free_port()
    words = [*triton, f"--model-repository={repository}", "--model-control-mode=explicit"]
    words += [f"--load-model={name}", f"--http-address={_LOOPBACK}", f"--http-port={port}"]
    words += ["--allow-grpc=false", "--allow-metrics=false", "--exit-timeout-secs=5"]
    server = subprocess.Popen(words)
    try:
        url = f"http://{_LOOPBACK}:{port}/v2/models/{name}"
        _wait_ready(f"{url}/ready", server)
        return [_post(f"{url}/infer", body, head) for body, head in cases]
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def run(kit: Path, device: Callable[[], Device] = first_device) -> None:
    """Build the kit's plan, ask it the golden cases, and write down what came of it."""
    page = json.loads((kit / "kit.json").read_text())
    for old in (BUILT, PLAN, LAYERS):
        (kit / old).unlink(missing_ok=True)
    capability, name = device()
    plan = kit / PLAN
    seconds = build([_tool(word, kit) for word in page["trtexec"]], plan)
    tensorrt = version_of(plan)
    cases = [((kit / f"case-{n}.body").read_bytes(), head) for n, head in enumerate(page["cases"])]
    with tempfile.TemporaryDirectory() as folder:
        version = Path(folder) / page["name"] / "1"
        version.mkdir(parents=True)
        shutil.copy(kit / "config.pbtxt", version.parent)
        shutil.copy(plan, version / PLAN)
        answers = ask(Path(folder), page["name"], [_tool(w, kit) for w in page["triton"]], cases)
    for number, (body, _) in enumerate(answers):
        (kit / f"answer-{number}.body").write_bytes(body)
    content = plan.read_bytes()
    _write(
        kit / BUILT,
        {
            "tensorrt": tensorrt,
            "compute_capability": capability,
            "device": name,
            "image": os.environ.get("IMAGE", ""),
            "platform": this_platform(),
            "seconds": round(seconds, 3),
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "answers": [head for _, head in answers],
        },
    )


def _tool(word: str, kit: Path) -> str:
    return word.replace("{kit}", str(kit))


def _wait_ready(url: str, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _STARTING
    while time.monotonic() < until:
        if server.poll() is not None:
            raise Failed("Triton cannot serve the plan; its output is above")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise Failed(f"Triton was not ready within {_STARTING:g} s")


def _post(url: str, body: bytes, head: int) -> tuple[bytes, int]:
    headers = {"Content-Type": "application/octet-stream", HEAD_LENGTH: str(head)}
    question = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(question, timeout=_ASKING) as reply:
            answer: bytes = reply.read()
            return answer, int(reply.headers.get(HEAD_LENGTH) or len(answer))
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace")
        raise Failed(f"Triton rejects a golden case: {said}") from error


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((_LOOPBACK, 0))
        return int(one.getsockname()[1])


def _write(path: Path, page: Mapping[str, Any]) -> None:
    """A JSON file that is whole or not there."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(page, indent=1))
    part.replace(path)


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except (Failed, OSError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        sys.exit(1)
