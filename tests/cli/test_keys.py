"""`servegate key` against a gateway that stands still: what is printed where, and exit codes."""

import json
from pathlib import Path

import pytest
from cli.commands import Done, servegate

from serve.app.paths import LOCK_FILE
from serve.cli.keys import seconds_of
from serve.core.errors import Invalid
from serve.processes import hold_lock

NOWHERE = "9"  # the discard port, where nobody listens


def run(folder: Path, *arguments: str) -> Done:
    """One command in a folder of its own."""
    return servegate("key", *arguments, folder=folder, SERVEGATE_ADMIN_PORT=NOWHERE)


def test_lengths_of_time_are_read() -> None:
    lengths = {"30d": 2_592_000, "12h": 43_200, "90m": 5400, "1s": 1, "2w": 1_209_600}
    assert {text: seconds_of(text) for text in lengths} == lengths
    for text in ("", "30", "d", "0d", "-1d", "1.5d", "30 d", "1y", "30d12h"):
        with pytest.raises(Invalid):
            seconds_of(text)


def test_a_key_is_made_listed_and_revoked_while_the_gateway_stands_still(tmp_path: Path) -> None:
    made = run(tmp_path, "create", "--role", "predictor", "--models", "a*,b", "--expires", "30d")
    assert made.returncode == 0, made.stderr
    [words] = made.stdout.splitlines()
    identity = words.split("_")[1]
    assert words.startswith("sg_") and words not in made.stderr
    assert "it takes effect when the gateway starts" in made.stderr
    listed = run(tmp_path, "ls").stdout.splitlines()
    assert listed[0].split("\t")[:4] == ["key", "role", "models", "state"]
    assert listed[1].split("\t")[:4] == [identity, "predictor", "a* b", "active"]
    revoked = run(tmp_path, "revoke", identity)
    assert (revoked.returncode, revoked.stdout) == (0, "")
    [shown] = json.loads(run(tmp_path, "ls", "--json").stdout)
    assert (shown["id"], shown["state"]) == (identity, "revoked")
    made = json.loads(run(tmp_path, "create", "--role", "admin", "--json").stdout)
    assert made["key"].startswith(f"sg_{made['id']}_")


def test_exit_codes_say_what_went_wrong(tmp_path: Path) -> None:
    for words, code in (
        ("create --role owner", 2),
        ("create --role predictor --expires soon", 2),
        ("create --role admin --models a*", 2),
        ("revoke abcd", 3),
        ("revoke sg_abcd_0123456789abcdef", 2),
        ("ls --key-file sg_abcd_0123456789abcdef", 2),
        ("ls --key sg_abcd_0123456789abcdef", 2),
        ("ls --admin-url http://127.0.0.1:9", 6),
    ):
        done = run(tmp_path, *words.split())
        assert done.returncode == code, words
        assert "Traceback" not in done.stderr and "0123456789abcdef" not in done.stderr


def test_the_store_of_a_gateway_that_runs_elsewhere_is_left_alone(tmp_path: Path) -> None:
    with hold_lock(tmp_path / ".servegate" / LOCK_FILE):
        done = run(tmp_path, "create", "--role", "predictor")
    assert done.returncode == 6
    assert "does not respond" in done.stderr and "--admin-url" in done.stderr
    assert done.stdout == ""
