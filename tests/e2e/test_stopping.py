"""Starting twice, stopping cleanly, and clearing up after a kill -9."""

import hashlib
import os
import signal
import socket
import time
from datetime import datetime
from pathlib import Path

import harness
import pytest
from certificates import Authority
from ports import free_ports

from serve.app.paths import LOCK_FILE
from serve.processes import hold_lock

pytestmark = pytest.mark.triton

NAMES = ("http", "grpc", "metrics", "admin")


def segments():
    return {entry.name for entry in Path("/dev/shm").iterdir()}


def prefix(up):
    """The mark of this state folder in the names of its shared memory."""
    return "servegate-" + hashlib.sha256(os.fsencode(up.state.resolve())).hexdigest()[:8]


def open_ports(up):
    def connects(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return [port for port in up.numbers if connects(port)]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_stops_everything_within_ten_seconds(tmp_path, number):
    up = harness.Up(tmp_path / "state").wait_ready()
    below = harness.descendants(up.program.process.pid)
    assert len(below) >= 6  # triton, its two stubs, control, the parent of workers, a worker
    assert any(name.startswith(prefix(up)) for name in segments())
    begun = time.monotonic()
    assert up.program.stop(number) == 0
    assert time.monotonic() - begun < 10
    assert not [pid for pid in below if harness.is_alive(pid)]
    assert not [name for name in segments() if name.startswith(prefix(up))]
    assert not open_ports(up)
    assert "Traceback" not in up.program.output


@pytest.mark.slow
def test_the_next_start_is_on_the_same_ports_and_sweeps_what_a_kill_9_has_left(tmp_path):
    state, ports, below = tmp_path / "state", free_ports(4), []
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        up = harness.Up(state, on=ports).wait_ready()
        assert not [pid for pid in below if harness.is_alive(pid)]
        below = harness.descendants(up.program.process.pid)
        code = up.program.stop(number)
        assert code == (0 if number is signal.SIGTERM else -number), up.program.output
        harness.until(lambda: not open_ports(up), what="workers die with their parent")  # noqa: B023
    assert not [name for name in segments() if name.startswith(prefix(up))]


@pytest.mark.slow
def test_what_cannot_start_says_so_in_a_sentence(tmp_path):
    chain, key = Authority(tmp_path).issue("old", ends=datetime(2020, 1, 1))
    for name, content in (("control.sqlite", b"no database" * 100), ("secret", b"caf\xc3\xa9")):
        (tmp_path / name[:3]).mkdir()
        (tmp_path / name[:3] / name).write_bytes(content)
    elsewhere = "--autoscale needs local Tritons"
    discovers = {"SERVEGATE_DISCOVER": "dns=tritons:1:2:3"}
    other = socket.create_server(("127.0.0.1", 0))
    number = other.getsockname()[1]
    cases = (
        (("up", "--model-repo", str(tmp_path / "none")), {}, 1, "is not a folder"),
        (("up", "--host", "0.0.0.0"), {}, 1, "listening on 0.0.0.0 is not safe"),
        (("up", "--replicas", "0"), {}, 2, "'0' is not a valid value for 'replicas' (flag --repl"),
        (("up", "--triton", "localhost:1"), {}, 2, "is not the address of a Triton"),
        (("up", "--autoscale", "1..2", "--triton", "127.0.0.1:1:2:3"), {}, 2, elsewhere),
        (("up", "--autoscale", "1..2"), discovers, 2, elsewhere),
        (("up", "--autoscale", "4..1"), {}, 2, "'4..1' is not a valid range of replicas"),
        (("up", "--tls-cert", str(chain), "--tls-key", str(key)), {}, 1, "expired on 2020-01-01"),
        (("up", "--state", str(tmp_path / "con")), {}, 1, "control.sqlite cannot be read"),
        (("up", "--state", str(tmp_path / "sec")), {}, 1, "does not contain a valid secret"),
        (("control",), {}, 1, "--discover kubernetes"),
        (("up", "--state", str(tmp_path)), {}, 1, "is in use"),
        *((("up", f"--{name}-port={number}"), {}, 1, f"pass --{name}-port") for name in NAMES),
    )
    with other, hold_lock(tmp_path / LOCK_FILE):
        for arguments, env, code, wanted in cases:
            given = {"SERVEGATE_STATE": str(tmp_path / "state"), **env}
            for name, port in zip(NAMES, free_ports(4), strict=True):
                given[f"SERVEGATE_{name.upper()}_PORT"] = str(port)
            done = harness.servegate(*arguments, env=given)
            assert (done.returncode, wanted in done.stderr) == (code, True), (arguments, done)
            assert "Traceback" not in done.stderr
