"""A large push whose client and server are killed in the middle: it goes on where it was."""

import hashlib
import json
import math
import os
import signal
import subprocess

import harness
import pushing
import pytest
from relay import relay

pytestmark = [pytest.mark.triton, pytest.mark.slow]

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


def start(relayed, folder):
    """A push in the background over a relay; gives the process."""
    command = [str(harness.BIN / "servegate"), "model", "push", str(folder), "large"]
    flags = ["--wait", "--json", "--label", "candidate"]
    return subprocess.Popen(
        [*command, *flags, "--admin-url", f"http://127.0.0.1:{relayed.port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def staged(up):
    """Bytes of the unfinished upload that the server has on its disk."""
    return sum(path.stat().st_size for path in (up.state / "uploads" / "staging").rglob("*"))


def test_a_large_push_survives_the_kill_of_client_and_server_and_sends_little_twice(tmp_path):
    right = large(tmp_path / "m")
    with (
        harness.up(tmp_path / "state", "--model-repo", "", "--quarantine", "off") as up,
        relay(up.admin_port, room=0.3 * SIZE) as relayed,
    ):
        first = start(relayed, tmp_path / "m")
        relayed.await_full()
        first.send_signal(signal.SIGKILL)
        first.communicate()
        relayed.hang_up()
        harness.until(lambda: staged(up) >= 0.25 * SIZE)
        had = staged(up)
        relayed.raise_to(0.6 * SIZE)
        second = start(relayed, tmp_path / "m")
        relayed.await_full()
        os.kill(up.children()["control"], signal.SIGKILL)
        relayed.raise_to(math.inf)  # the client waits for the next one, and goes on
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
