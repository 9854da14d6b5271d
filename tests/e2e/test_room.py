"""Memory, and what stays loaded: who finds no room, what goes, and how it comes back."""

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    """One replica with room for two versions of 400 kB, which keeps nothing that is not needed."""
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--quarantine", "off")
    flags += ("--pool-memory", "default=1000000", "--keep-loaded", "0")
    env = {"SERVEGATE_UNLOAD_AFTER": "1", "SERVEGATE_SCAN_INTERVAL": "0.3"}
    with harness.up(tmp_path_factory.mktemp("tight") / "state", *flags, env=env) as up:
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


def test_an_idle_version_is_unloaded_and_loads_again_when_somebody_asks(tight, tmp_path):
    def held():
        return tight.get("/api/replicas")[0]["held"].get("idle", [])

    pushing.published(tight, tmp_path / "a", "idle", 2.0)
    pushing.published(tight, tmp_path / "b", "idle", 3.0, live=True)
    harness.until(lambda: held() == [2], what="version 1 is unloaded after its grace")
    code, said = command(tight, "label", "set", "idle", "old", "1")
    assert code != 0 and "servegate model load idle@1" in said
    code, said = command(tight, "model", "load", "idle@1")
    assert code == 0 and "stays loaded until" in said
    pushing.wait_state(tight, "idle", 1, "ready")
    assert command(tight, "label", "set", "idle", "old", "1")[0] == 0
    assert command(tight, "model", "unload", "idle@1")[0] == 0
    assert pushing.factor_of(tight, "idle", "old") == 2.0
    assert command(tight, "label", "rm", "idle", "old")[0] == 0
    harness.until(lambda: held() == [2], what="version 1 goes again")
    assert pushing.factor_of(tight, "idle") == 3.0


def test_a_model_is_unloaded_and_loaded_by_command(tight, tmp_path):
    pushing.published(tight, tmp_path / "m", "switched", 2.0)
    assert command(tight, "model", "unload", "switched")[0] == 0
    assert pushing.infer(tight, "switched")[0] in (404, 503)
    assert tight.get("/api/models/switched")["state"] == "unloaded"
    assert command(tight, "model", "load", "switched")[0] == 0
    assert pushing.factor_of(tight, "switched") == 2.0
