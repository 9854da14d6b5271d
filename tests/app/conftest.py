"""What tests of the processes share: authorities that sign certificates, and a server."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from app.scripted import Threaded
from certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    folder = tmp_path / "stranger"
    folder.mkdir()
    return Authority(folder)


@pytest.fixture
def threaded() -> Iterator[Threaded]:
    with Threaded() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
