"""A large push whose client and server are killed in the middle: it goes on where it was."""

import hashlib
import json
import os
import re
import signal
import subprocess

import harness
import pushing
import pytest

pytestmark = pytest.mark.triton

MIB = 1 << 20
SIZE = int(os.environ.get("SERVEGATE_TEST_PUSH_MIB", "200")) * MIB


def large(folder):
    """A model folder with content that nobody has seen before and nothing can compress."""
    pushing.source(folder, 2.0)
    digest = hashlib.sha256()
    with (folder / "1" / "weights.bin").open("wb") as file:
        for _ in range(SIZE // (4 * MIB)):
            piece = os.urandom(4 * MIB)
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def start(up, folder):
    """A push in the background; gives the process."""
    command = [str(harness.BIN / "servegate"), "model", "push", str(folder), "large"]
    flags = ["--wait", "--json", "--label", "candidate", "--admin-url", up.admin]
    return subprocess.Popen(
        command + flags, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def events(process):
    for line in process.stdout:
        yield json.loads(line)


def is_past(event, share):
    """Whether this share of all bytes is on the server."""
    is_sending = event["type"] == "progress" and event["stage"] == "uploading"
    return is_sending and event["done"] >= share * SIZE


def kill_after(process, share):
    """Read its events until this share is on the server; then it is killed."""
    for event in events(process):
        if is_past(event, share):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def staged(up):
    """Bytes of the unfinished upload that the server has on its disk."""
    return sum(path.stat().st_size for path in (up.state / "uploads" / "staging").rglob("*"))


def test_a_large_push_survives_the_kill_of_client_and_server_and_sends_little_twice(tmp_path):
    right = large(tmp_path / "m")
    with harness.up(tmp_path / "state", "--model-repo", "", "--quarantine", "off") as up:
        first = start(up, tmp_path / "m")
        kill_after(first, 0.3)
        had = staged(up)
        assert had >= 0.25 * SIZE
        second = start(up, tmp_path / "m")
        for event in events(second):
            if is_past(event, 0.6):
                break
        pid = up.children()["control"]
        os.kill(pid, signal.SIGKILL)  # the client waits for the next one, and goes on
        rest, _ = second.communicate(timeout=120)
        result = json.loads(rest.splitlines()[-1])
        assert (second.returncode, result["version"]) == (0, 1), rest
        assert result["sent"] + had <= 1.05 * SIZE + pushing_overhead(tmp_path / "m")
        shown = pushing.state(up, "large", 1)
        files = {file["path"]: file for file in shown["files"]}
        assert files["1/weights.bin"] == {"path": "1/weights.bin", "size": SIZE, "sha256": right}
        blob = up.state / "registry" / "blobs" / "sha256" / right[:2] / right
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == right
        assert pushing.factor_of(up, "large", "candidate") == 2.0
        again = pushing.pushed(up, tmp_path / "m", "large", "--wait")
        assert (again["version"], again["created"], again["sent"]) == (1, False, 0)


def pushing_overhead(folder):
    """Bytes of the small files."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) - SIZE


def test_progress_is_told_while_it_lasts(tmp_path):
    folder = pushing.source(tmp_path / "m", 2.0)
    with harness.up(tmp_path / "state", "--model-repo", "", "--quarantine", "off") as up:
        done = pushing.push(up, folder, "told", "--wait", "--json")
        kinds = [json.loads(line)["type"] for line in done.stdout.splitlines()]
        assert kinds[-1] == "result"
        assert {"digest", "upload", "sent", "committed", "state"} <= set(kinds), kinds
        plain = pushing.push(up, folder, "plain", "--wait")
        assert plain.stdout == "plain@1\n"
        assert re.search(r"version 1 is ready", plain.stderr), plain.stderr
