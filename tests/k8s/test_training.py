"""The training recipe: its manifests agree with the script, and the script trains on two machines.

The machines are two processes on loopback, without a GPU; Kubeflow Trainer itself is not here.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ports import free_ports
from sklearn.datasets import load_digits

from k8s.cluster import ROOT

FOLDER = ROOT / "k8s/examples/training"
SCRIPT = FOLDER / "train.py"


def manifest(name: str) -> Any:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


def environment(**more: str) -> dict[str, str]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return os.environ | quiet | more


def test_the_runtime_starts_the_script_and_names_the_job() -> None:
    [job] = manifest("trainingruntime")["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"  # which the names of the hosts are made of
    pod = job["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert container["command"][1] == f"{mounts['train']}/{SCRIPT.name}"
    assert container["command"][2].startswith(f"--out={mounts['trained']}/")
    assert "TRAINJOB" in [one["name"] for one in container["env"]]
    [generated] = manifest("kustomization")["configMapGenerator"]
    assert (generated["name"], generated["files"]) == ("train", [SCRIPT.name])


@pytest.mark.tensorflow
def test_a_machine_knows_all_machines_of_its_job_by_name() -> None:
    ask = "import json, os, train; print(train.cluster(os.environ))"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=FOLDER,
        env=environment(TRAINJOB="cifar10", NODES="2", JOB_COMPLETION_INDEX="1"),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["task"] == {"type": "worker", "index": 1}
    assert found["cluster"]["worker"] == [
        "cifar10-node-0-0.cifar10:2222",
        "cifar10-node-0-1.cifar10:2222",
    ]


@pytest.mark.tensorflow
def test_two_machines_train_one_model_and_the_first_writes_it(tmp_path: Path) -> None:
    digits(tmp_path / "digits.npz")
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    machines = [start(tmp_path, workers, index) for index in range(len(workers))]
    said = [one.communicate(timeout=300)[0] for one in machines]
    assert [one.returncode for one in machines] == [0, 0], said
    [first], [second] = (re.findall("^accuracy (.+) on", text, re.MULTILINE) for text in said)
    assert first == second  # they have the same weights
    assert float(first) > 0.8
    assert (tmp_path / "out-0/saved_model.pb").is_file()
    assert not (tmp_path / "out-1").exists()


def digits(file: Path) -> None:
    pictures, labels = load_digits(return_X_y=True)
    rows = (pictures / 16).astype("float32").reshape(-1, 8, 8, 1)
    np.savez(
        file,
        train=rows[:1400],
        train_labels=labels[:1400],
        test=rows[1400:],
        test_labels=labels[1400:],
    )


def start(folder: Path, workers: list[str], index: int) -> subprocess.Popen[str]:
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    words = ["--data=digits.npz", f"--out=out-{index}", "--epochs=6", "--batch=32", "--blocks=1"]
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *words],
        cwd=folder,
        env=environment(TF_CONFIG=json.dumps(config)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
