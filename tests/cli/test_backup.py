"""`servegate backup` and `restore`: on a state folder and on PostgreSQL, and what is refused."""

import asyncio
import json
from pathlib import Path

import pytest
from cli.commands import Done, servegate
from database import PostgresServer

from serve.app.paths import LOCK_FILE
from serve.control.storage.leadership import leadership_of
from serve.processes import hold_lock


def run(folder: Path, *arguments: str) -> Done:
    """One command in a folder of its own; no gateway answers."""
    return servegate(*arguments, folder=folder, SERVEGATE_ADMIN_PORT="9")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose store holds a key, and its backup."""
    assert run(tmp_path, "key", "create", "--role", "predictor").returncode == 0
    made = run(tmp_path, "backup", "monday")
    assert (made.returncode, made.stdout) == (0, ""), made.stderr
    assert made.stderr == "wrote monday: 1 settings and 1 revisions\n"
    return tmp_path


def keys(folder: Path, state: str) -> list[str]:
    listed = run(folder, "key", "ls", "--json", "--state", state)
    return [key["id"] for key in json.loads(listed.stdout)]


def test_a_store_is_restored_into_an_empty_state_folder(folder: Path) -> None:
    done = run(folder, "restore", "monday", "--state", "other")
    assert done.returncode == 0, done.stderr
    assert keys(folder, "other") == keys(folder, ".servegate")
    assert (folder / "monday").stat().st_mode & 0o777 == 0o600


def test_a_store_in_use_is_not_replaced_and_another_one_only_in_so_many_words(folder: Path) -> None:
    plain = run(folder, "restore", "monday")
    assert plain.returncode == 5 and "--replace" in plain.stderr
    unasked = run(folder, "restore", "monday", "--replace")
    assert unasked.returncode == 2 and "--yes" in unasked.stderr
    with hold_lock(folder / ".servegate" / LOCK_FILE):
        done = run(folder, "restore", "monday", "--replace", "--yes")
        assert done.returncode == 1 and "is in use" in done.stderr
        assert run(folder, "backup", "tuesday").returncode == 0
    done = run(folder, "restore", "monday", "--replace", "--yes")
    assert done.returncode == 0, done.stderr


def test_nothing_is_restored_below_a_leader(folder: Path, postgresql: PostgresServer) -> None:
    url = postgresql.new_database()
    leader = leadership_of(url, folder / "lock")
    assert asyncio.run(leader.try_acquire())
    done = run(folder, "restore", "monday", "--database", url)
    assert done.returncode == 1 and "a control plane uses it" in done.stderr
    asyncio.run(leader.release())
    assert run(folder, "restore", "monday", "--database", url).returncode == 0


def test_exit_codes_say_what_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("no backup\n")
    for arguments, code in (
        ("backup x --state nowhere", 3),
        ("backup x --database mysql://h/x", 1),
        ("backup x --database postgresql://h@127.0.0.1:9/x", 6),
        ("restore x --database postgresql://h@127.0.0.1:9/x", 6),
        ("restore no-such-file --state other", 1),
        ("restore key.txt --state other", 2),
    ):
        done = run(tmp_path, *arguments.split())
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr and done.stdout == ""
