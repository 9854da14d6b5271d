"""The real program on the real demo model, started once for the tests that only call it."""

from collections.abc import Iterator
from types import ModuleType

import harness
import pytest


@pytest.fixture(scope="session")
def digits() -> ModuleType:
    """The data contract of the demo model."""
    return harness.load_example("examples/digits/data.py")


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Up]:
    """`servegate up` on the demo's repository: two Tritons, two workers, labels set."""
    state = tmp_path_factory.mktemp("gateway")
    with harness.up(state, "--replicas", "2", "--workers", "2") as up:
        up.put("/api/models/digits/labels/stable", {"version": 1})
        up.put("/api/models/digits/labels/candidate", {"version": 2})
        yield up


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Up]:
    """`servegate up` with one worker whose split draws are known."""
    state = tmp_path_factory.mktemp("seeded")
    with harness.up(state, "--replicas", "1", "--workers", "1", "--seed", "7") as up:
        yield up
