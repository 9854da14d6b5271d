"""Memory, and what stays loaded: who finds no room, what goes, and how it comes back."""

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]


@pytest.fixture
def tight(tmp_path):
    """One replica with room for two versions of 400 kB, which keeps nothing that is not needed."""
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--quarantine", "off")
    flags += ("--pool-memory", "default=1000000", "--keep-loaded", "0")
    env = {"SERVEGATE_UNLOAD_AFTER": "1", "SERVEGATE_SCAN_INTERVAL": "0.3"}
    with harness.up(tmp_path / "state", *flags, env=env) as up:
        yield up


def big(folder, factor):
    pushing.source(folder, factor)
    (folder / "1" / "filler.bin").write_bytes(bytes(400_000))
    return folder


def command(up, *words):
    """One `servegate` command: what it said, after it has ended well or badly."""
    done = harness.servegate(*words, "--admin-url", up.admin)
    return done.returncode, done.stdout + done.stderr


def test_what_finds_no_room_is_told_displaces_nobody_and_comes_when_there_is_room(tight, tmp_path):
    for number, name in enumerate(("one", "two")):
        pushing.publish(tight, big(tmp_path / name, 2.0 + number), name)
        pushing.wait_state(tight, name, 1, "serving")
    pushing.publish(tight, big(tmp_path / "three", 4.0), "three")
    shown = pushing.wait_state(tight, "three", 1, "failed")
    assert "pool 'default' has too little memory for it" in shown["reason"]
    assert "too little memory" in command(tight, "model", "show", "three")[1]
    assert [pushing.factor_of(tight, name) for name in ("one", "two")] == [2.0, 3.0]
    assert pushing.infer(tight, "three")[0] in (404, 503)
    assert command(tight, "model", "rm", "one@1")[0] == 0
    pushing.wait_state(tight, "three", 1, "serving", "ready")
    assert pushing.factor_of(tight, "three") == 4.0
    assert "one" not in tight.get("/api/replicas")[0]["held"]
    assert command(tight, "model", "unload", "two")[0] == 0
    assert pushing.infer(tight, "two")[0] in (404, 503)
    assert tight.get("/api/models/two")["state"] == "unloaded"
    assert command(tight, "model", "load", "two")[0] == 0
    assert pushing.factor_of(tight, "two") == 3.0
