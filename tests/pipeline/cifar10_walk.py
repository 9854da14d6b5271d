"""Runs the big example's steps on pictures of noise, in the environment of the pipelines.

    python tests/pipeline/cifar10_walk.py FOLDER ROWS

An archive in the layout of CIFAR-10's is made, with ROWS pictures in each batch; it goes through
`preprocess`, an epoch of the real ResNet-50, and `evaluate`. What came of it is one line of JSON.
"""

import hashlib
import io
import json
import pickle
import sys
import tarfile
from pathlib import Path

import numpy as np
from kfp import dsl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "kubeflow"))
import cifar10
import shared
import steps

CLASSES = ["airplane", "automobile", "bird", "cat", "deer"]
CLASSES += ["dog", "frog", "horse", "ship", "truck"]


def make_archive(path: Path, rows: int) -> str:
    """Write it; its SHA-256."""
    draw = np.random.default_rng(1)
    pages = {}
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        data = draw.integers(0, 256, (rows, 3072), dtype=np.uint8)
        pages[name] = {b"data": data, b"labels": [row % 10 for row in range(rows)]}
    pages["batches.meta"] = {"label_names": CLASSES}
    with tarfile.open(path, "w:gz") as archive:
        for name, page in pages.items():
            content = pickle.dumps(page)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Walk, and tell."""
    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    for module in (cifar10, steps):  # as kfp puts them before the functions
        for used in (shared.say, shared.tensors):
            setattr(module, used.__name__, used)
    kinds = {"counts": dsl.Metrics, "learning": dsl.Metrics, "measured": dsl.Metrics}
    kinds |= {"trained": dsl.Model, "confusion": dsl.ClassificationMetrics}
    made = {
        name: kinds.get(name, dsl.Dataset)(name=name, uri=str(folder / name))
        for name in ("train", "validation", "held_out", "golden", *kinds)
    }
    archive = folder / "cifar-10.tar.gz"
    digest = make_archive(archive, rows)
    parts = {name: made[name] for name in ("train", "validation", "held_out")}
    cifar10.preprocess(str(archive), digest, 7, **parts, counts=made["counts"])
    del parts["held_out"]
    cifar10.fit(
        **parts,
        epochs=1,
        batch=45,
        mixed_precision=False,
        seed=7,
        trained=made["trained"],
        learning=made["learning"],
    )
    measured = {name: made[name] for name in ("golden", "measured", "confusion")}
    right, count = steps.evaluate(made["trained"], made["held_out"], **measured)
    page = {"right": right, "rows": count, "metrics": {n: made[n].metadata for n in kinds}}
    print(json.dumps(page))


if __name__ == "__main__":
    main()
