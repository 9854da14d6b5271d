"""Archives and HDF5 files as Keras writes them, and as somebody else does."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def layer(kind: str, name: str, module: str | None = "keras.layers", **config: Any) -> Any:
    return {
        "module": module,
        "class_name": kind,
        "config": {"name": name, **config},
        "registered_name": None,
    }


def model(*layers: Any, **rest: Any) -> dict[str, Any]:
    """The configuration of a model of these layers behind one input of four numbers."""
    start = layer("InputLayer", "x", batch_shape=[None, 4], dtype="float32")
    return {**layer("Sequential", "m", "keras", layers=[start, *layers]), **rest}


DENSE = layer("Dense", "dense", units=3, activation="relu")


def weights(shape: tuple[int, ...] = (4, 3)) -> bytes:
    """An HDF5 file with one array."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["layers/dense/vars/0"] = np.ones(shape, np.float32)
    return buffer.getvalue()


def members(config: Any = None, **more: bytes) -> dict[str, bytes]:
    """The files of an archive; names in `more` have `__` for `/`."""
    found = {
        "metadata.json": b'{"keras_version": "3.15.1"}',
        "config.json": json.dumps(model(DENSE) if config is None else config).encode(),
        "model.weights.h5": weights(),
    }
    return found | {name.replace("__", "/"): content for name, content in more.items()}


def archive(path: Path, content: Mapping[str, bytes], *, packed: bool = False) -> Path:
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return path


def keras(path: Path, config: Any = None) -> Path:
    """A .keras file of this configuration."""
    return archive(path, members(config))


def h5(path: Path, config: Any = None) -> Path:
    """A .h5 file of this configuration."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model(DENSE) if config is None else config)
        file["model_weights/dense/kernel"] = np.ones((4, 3), np.float32)
    return path


def tenths(path: Path) -> Iterator[Path]:
    """The file ten times, cut off at each tenth; the first time it is empty."""
    whole = path.read_bytes()
    for tenth in range(10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        yield path


def flipped(path: Path, *, seed: int, times: int, bytes_each: int = 1) -> Iterator[Path]:
    """The file so many times, with other wrong bytes each time."""
    whole, chance = path.read_bytes(), np.random.default_rng(seed)
    for _ in range(times):
        data = bytearray(whole)
        for place in chance.integers(0, len(whole), bytes_each):
            data[place] ^= int(chance.integers(1, 256))
        path.write_bytes(data)
        yield path
