"""What tests of the processes share: an authority that signs certificates, and one apart."""

from pathlib import Path

import pytest
from certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """An authority that nobody trusts."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    return Authority(folder)
