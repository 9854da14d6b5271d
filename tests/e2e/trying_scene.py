"""Five different models to try, and what people do with a try in a shell."""

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import harness
import numpy as np
from PIL import Image
from triton.onnx_models import Model, config, node, onnx_file, tensor

STEPS = {"kind": "image", "color": "grey", "resize": [8, 8], "resample": "box"}
STEPS |= {"scale": [1, 16], "layout": "HWC", "dtype": "FP32"}
SHIM = '#!/bin/sh\nexec {python} {script} "$@"\n'
HOSTILE = 'it\'s $HOME `x` "y"'  # the name of an input


def halves(weight: float) -> bytes:
    """FP32 [8, 8, 1] → two scores: the light of the upper half, times a weight; of the lower."""
    upper = np.zeros((64, 2), np.float32)
    upper[:32, 0], upper[32:, 1] = weight, 1
    return onnx_file(
        [tensor("picture", "FP32", "n", 8, 8, 1)],
        [tensor("scores", "FP32", "n", 2)],
        node("Flatten", "picture", "flat", axis=1),
        node("MatMul", "flat halves", "scores"),
        constants={"halves": upper},
    )


def same(kind: str, *dims: int | str) -> bytes:
    """Gives `x` back as `y`."""
    return onnx_file(
        [tensor("x", kind, *dims)], [tensor("y", kind, *dims)], node("Identity", "x", "y")
    )


def chosen() -> bytes:
    """FP16 and BOOL: the values that are kept, 0 for the others."""
    where = node("Where", "keep half nothing", "kept")
    where.input[1] = HOSTILE
    return onnx_file(
        [tensor(HOSTILE, "FP16", "n", 3), tensor("keep", "BOOL", "n", 3)],
        [tensor("kept", "FP16", "n", 3)],
        where,
        constants={"nothing": np.zeros(1, np.float16)},
    )


def write_models(repository: Path) -> None:
    """By name: pictures in two versions, whole numbers, texts, two inputs, and no batch."""
    repository.mkdir()
    both = "version_policy { all {} }"
    scores = 'scores FP32 [2] label_filename: "labels.txt"'
    page = config("picture FP32 [8,8,1]", scores, both)
    name = json.dumps(HOSTILE)[1:-1]
    inputs = [f'input {{ name: "{name}" data_type: TYPE_FP16 dims: [3] }}']
    picks = config("keep BOOL [3]", "kept FP16 [3]", *inputs)
    rows = config("x FP32 [-1,4]", "y FP32 [-1,4]", max_batch_size=0)
    for called, model in {
        "picture": Model({1: halves(1.0), 2: halves(5.0)}, page),
        "matrix": Model({1: same("INT64", "n", 2, 3)}, config("x INT64 [2,3]", "y INT64 [2,3]")),
        "words": Model({1: same("STRING", "n", 2)}, config("x STRING [2]", "y STRING [2]")),
        "chosen": Model({1: chosen()}, picks),
        "free": Model({1: same("FP32", "rows", 4)}, rows),
    }.items():
        model.write(repository / called)
    (repository / "picture" / "labels.txt").write_text("above\nbelow\n")
    steps = {"inputs": {"picture": STEPS}}
    (repository / "picture" / "preprocessing.json").write_text(json.dumps(steps))


def picture() -> bytes:
    """A PNG: 200 above, 220 below."""
    pixels = np.full((8, 8), 200, np.uint8)
    pixels[4:] = 220
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def offered(form: str, data: bytes | Any = b"", name: str = "") -> dict[str, str]:
    """One input of a try."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return {"form": form, "data": base64.b64encode(raw).decode(), "name": name}


def tried(up: harness.Up, model: str, **body: Any) -> dict[str, Any]:
    """A try that is made."""
    status, answer = harness.request(f"{up.admin}/api/tries", "POST", {"model": model, **body})
    assert status == 201, answer
    return answer


def snippets(up: harness.Up, one: dict[str, Any], side: str = "a") -> dict[str, str]:
    """By language."""
    found = up.get(f"/api/tries/{one['id']}/snippets?side={side}")
    return {snippet["language"]: snippet["text"] for snippet in found}


class Shell:
    """Runs what a snippet says, exactly, in a folder of its own; `grpcurl` is ours if need be."""

    def __init__(self, folder: Path, **env: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir(exist_ok=True)
        if shutil.which("grpcurl") is None:
            script = Path(__file__).with_name("grpcurl.py")
            shim = tools / "grpcurl"
            shim.write_text(SHIM.format(python=sys.executable, script=script))
            shim.chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, **env}

    def run(self, language: str, text: str) -> str:
        """What it prints; fails when it does."""
        command = ["bash", "-c", text]
        if language == "python":
            (self.folder / "snippet.py").write_text(text)
            command = [sys.executable, "snippet.py"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        return done.stdout
