"""Databases: the files of SQLite, and who may read them."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.control.storing.database import Sqlite
from serve.control.storing.store import Store

NAMES = ("control.sqlite", "control.sqlite-shm", "control.sqlite-wal")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Nothing but the mode that is asked for keeps others out."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_the_files_of_a_new_store_are_for_its_owner_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / NAMES[0], clock=lambda: 0.0)
    store.migrate()
    assert modes(tmp_path) == dict.fromkeys(NAMES, 0o600)
    store.close()


def test_the_files_of_an_older_store_become_private(tmp_path: Path) -> None:
    earlier, now = Sqlite(tmp_path / NAMES[0]), Sqlite(tmp_path / NAMES[0])
    with earlier.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE one (n INTEGER)")
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        assert set(modes(tmp_path)) == set(NAMES)
    with now.reading():
        assert modes(tmp_path) == dict.fromkeys(NAMES, 0o600)
    earlier.close()
    now.close()
