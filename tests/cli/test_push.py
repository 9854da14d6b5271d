"""`servegate model push` as people run it, against a fake gateway: streams, exit codes."""

import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli.commands import SERVEGATE, Done, servegate
from fake_gateway import FakeGateway, Fault

from serve.core.versions import VersionFile
from serve.tensors.contracts import Contract

CONFIG = """backend: "onnxruntime"
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
"""
SIZE = 20_000_000


class Here:
    """A small model folder of Triton, and the fake gateway that it is pushed to."""

    def __init__(self, gateway: FakeGateway, folder: Path) -> None:
        self.gateway = gateway
        self.folder = folder
        (folder / "1").mkdir(parents=True)
        (folder / "1/model.onnx").write_bytes(b"model")
        (folder / "config.pbtxt").write_text(CONFIG)

    def push(self, *words: object, folder: object = None, name: str = "m") -> Done:
        """One push that runs to its end."""
        url = self.gateway.url
        what = ("model", "push", folder or self.folder, name)
        return servegate(*what, *words, SERVEGATE_ADMIN_URL=url)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """The real program, for what a signal does to it."""
        own = {name: text for name, text in os.environ.items() if not name.startswith("SERVEGATE_")}
        return subprocess.Popen(
            [str(SERVEGATE), "model", "push", str(self.folder), "m", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=own | {"SERVEGATE_ADMIN_URL": self.gateway.url, "SERVEGATE_STATE": "/nonexistent"},
            start_new_session=True,
        )


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with FakeGateway().running() as running:
        yield Here(running, tmp_path / "m")


def test_a_push_prints_its_version_and_the_next_step(here: Here) -> None:
    done = here.push("--label", "candidate", "--tag", "k=v", "--reason", "why")
    assert (done.returncode, done.stdout) == (0, "m@1\n"), done.stderr
    assert "created version 1 of m" in done.stderr
    assert "to see its state: servegate model show m@1" in done.stderr
    [ask] = here.gateway.commits
    assert (ask["labels"], ask["tags"]) == (["candidate"], {"k": "v"})
    assert (ask["source"], set(ask["tools"])) == ("triton m", {"servegate"})
    again = here.push("--live")
    assert (again.returncode, again.stdout) == (0, "m@1\n")
    assert "version 1 of m already has this content" in again.stderr
    assert "sent " not in again.stderr and here.gateway.commits[-1]["live"]


def test_waiting_ends_with_what_serves_or_every_finding(here: Here) -> None:
    here.gateway.model["split"] = {"7": 1}
    here.gateway.looks = [
        {"recorded": "checked", "state": "checked"},
        {"recorded": "published", "state": "ready"},
    ]
    done = here.push("--wait")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "version 1 is ready on 2 replicas; version 7 still receives the traffic. "
        "Try: servegate route set m 1=100"
    )
    findings = ["dims differ", "no y"]
    here.gateway.looks = [{"recorded": "failed", "times": {}, "reason": "x", "findings": findings}]
    (here.folder / "labels.txt").write_text("other content")
    refused = here.push("--wait")
    assert refused.returncode == 7
    assert "  why: dims differ\n  why: no y\n" in refused.stderr


def test_programs_hear_events_and_a_result(here: Here) -> None:
    heard = here.push("--wait", "--json").events
    kinds = [each["type"] for each in heard]
    told = [kind for kind in kinds if kind not in ("progress", "note")]
    assert told == ["digest", "upload", "sent", "committed", "state", "result"]
    size = len(CONFIG) + 5
    result = heard[-1]
    assert (result["ok"], result["exit"], result["version"]) == (True, 0, 1)
    assert (result["sent"], result["total"], result["state"]) == (size, size, "ready")


def test_a_push_that_fails_says_so_in_the_last_event(here: Here) -> None:
    full = Fault("PATCH", status=507, code="no_space")
    for words, fault, status, code in (
        ("--label 3", None, 2, "invalid"),
        ("--tag k", None, 2, "invalid"),
        ("--git-commit HEAD", None, 2, "invalid"),
        ("--golden-top1 0 --golden x", None, 2, "invalid"),
        (f"--golden {here.folder}/config.pbtxt", None, 2, "invalid"),
        ("", full, 1, "no_space"),
        ("", Fault("POST", status=409, code="in_use"), 5, "in_use"),
    ):
        here.gateway.faults[:] = [fault] if fault else []
        done = here.push(*words.split(), "--json")
        last = done.events[-1]
        assert (done.returncode, last["type"], last["ok"]) == (status, "result", False), words
        assert (last["exit"], last["code"]) == (status, code)
        assert "Traceback" not in done.stderr
    assert here.push("--json", folder="nothing").events[-1]["code"] == "invalid"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_push_that_was_ended_goes_on_where_it_stopped(here: Here, number: signal.Signals) -> None:
    fault = Fault("PATCH", drop_after=12_000_000, held=threading.Event())
    assert fault.held is not None
    here.gateway.faults.append(fault)
    (here.folder / "config.pbtxt").unlink()
    (here.folder / "1/model.onnx").write_bytes(random.Random(1).randbytes(SIZE))
    running = here.start("--json")
    assert fault.reached.wait(30)
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    fault.held.set()
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert "run the same command again" in err and "Traceback" not in err
        assert json.loads(out.splitlines()[-1])["code"] == "interrupted"
    done = here.push()
    assert done.returncode == 0, done.stderr
    assert here.gateway.received == SIZE
    assert "uploaded 8 MB of 20 MB; the gateway had the rest" in done.stderr
    assert "the gateway already has 12 MB of 20 MB" in done.stderr


def test_ctrl_c_says_that_the_publication_goes_on(here: Here) -> None:
    here.gateway.looks = [{"recorded": "checked", "state": "checked"}]
    running = here.start("--wait")
    assert running.stderr is not None
    assert next(line for line in running.stderr if "version 1: checked" in line)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert (
        "the publication of version 1 continues; to see its state: servegate model show m@1" in err
    )


def test_golden_cases_travel_as_a_contract(here: Here, tmp_path: Path) -> None:
    x, y = np.ones((1, 4), np.float32), np.zeros((1, 2), np.float32)
    np.savez(tmp_path / "seven.npz", x=x, y=y)
    done = here.push("--golden", tmp_path / "seven.npz", "--golden-atol", 0.5)
    assert done.returncode == 0, done.stderr
    files = {file["path"]: file["sha256"] for file in here.gateway.versions[1].record["files"]}
    stored = {path: here.gateway.blobs[sha] for path, sha in files.items() if "contract/" in path}
    [case] = Contract.read(stored).cases
    assert (case.name, case.tolerance.atol) == ("seven", 0.5)
    assert case.inputs["x"].tolist() == x.tolist()


def test_the_commit_can_be_asked_of_git(here: Here) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(here.folder), *words], check=True)
    here.push("--git-commit", "auto")
    (here.folder / "labels.txt").write_text("new")
    here.push("--git-commit", "auto")
    clean, dirty = (ask["git_commit"] for ask in here.gateway.commits)
    assert len(clean) == 40
    assert dirty == f"{clean}-dirty"


@pytest.mark.slow
def test_a_dry_run_only_reads(here: Here) -> None:
    root = Path(__file__).parents[2] / "model_repo/digits"
    here.gateway.add(1, "digits", [VersionFile("2/model.onnx", 1, "0" * 64)])
    done = here.push("--dry-run", folder=root, name="digits")
    assert done.returncode == 0, done.stderr
    assert {method for method, _ in here.gateway.asked} == {"GET"}
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["file", "bytes", "sha256", "present"]
    assert {row[3] for row in rows[1:]} == {"no"} and "would upload" in done.stderr

    here.push(folder=root, name="digits")
    result = here.push("--dry-run", "--json", folder=root, name="digits").events[-1]
    assert result["existing"] == 2 and all(file["there"] for file in result["files"])

    refused = here.push("--dry-run")
    assert refused.returncode == 7
    assert "the gateway would reject this version" in refused.stderr
