"""Gateways that many tests share, each with models of its own: one start in a whole test run.

A test that kills, restarts or reconfigures a process starts a gateway of its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import guarding
import harness
import pytest
import repositories


@pytest.fixture(scope="session")
def digits() -> ModuleType:
    return harness.load_example("examples/digits/data.py")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all processes of this test run share."""
    mine = tmp_path_factory.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine


def plain(folder: Path):
    """The demo model; two Tritons, two workers, management over the data ports."""
    repositories.digits(folder / "models", "digits")
    flags = ("--replicas", "2", "--workers", "2", "--allow-management")
    return harness.up(folder / "state", "--model-repo", str(folder / "models"), *flags)


def uploads(folder: Path):
    """Two Tritons for what is pushed, of which the second is said to have a GPU."""
    flags = ("--replicas", "2", "--workers", "2", "--quarantine", "off")
    flags += ("--contract-interval", "2", "--machine-facts", "local-1.gpu=true")
    return harness.up(folder / "state", "--model-repo", "", *flags)


@pytest.fixture(scope="session")
def gateway(run_folder: Path) -> Iterator[harness.RunningGateway]:
    """See `plain`; the demo model has labels for both its versions."""
    with harness.shared(run_folder / "plain", plain) as up:
        up.put("/api/models/digits/labels/stable", {"version": 1})
        up.put("/api/models/digits/labels/candidate", {"version": 2})
        yield up


@pytest.fixture(scope="session")
def uploading(run_folder: Path) -> Iterator[harness.RunningGateway]:
    with harness.shared(run_folder / "uploads", uploads) as up:
        yield up


@pytest.fixture(scope="session")
def guarded(run_folder: Path) -> Iterator[guarding.Guarded]:
    with harness.shared(run_folder / "guarded", guarding.start) as up:
        yield guarding.Guarded(up)
