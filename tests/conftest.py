"""What all tests share: servers that nobody stops, and property tests that try the same each time.

Property tests write nothing.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import contexts
import durations
import pytest
from database import PostgresServer, postgres
from hypothesis import HealthCheck, settings
from object_store import ObjectStore, object_store

# The package is compiled once, and not by each process that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads, which start with each process and spin
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before ONNX Runtime is imported by any test
# Who runs this in the background of a shell ignores SIGINT, and so would all children that are to
# be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Threads of gRPC write into the stderr of a child that is forked, before it is another program.
os.environ["GRPC_VERBOSITY"] = "NONE"
settings.register_profile(
    "repeatable",
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # it measures time, so a busy machine fails it
)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    durations.register(config)
    contexts.register(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--both-loops", action="store_true", help="Run tests of asyncio's loop next to uvloop's."
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that start Tritons or TensorFlow come first; short ones fill the gaps at the end."""
    if not config.getoption("--both-loops"):
        deselect_asyncio(config, items)
    slow = {item.path for item in items if {"triton", "tensorflow"} & set(item.keywords)}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: the collector need not look at them again."""
    gc.collect()
    gc.freeze()


def deselect_asyncio(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out each test on asyncio's loop that exists on uvloop's, too: production has uvloop."""
    on_uvloop = {item.nodeid for item in items if "uvloop" in item.nodeid}
    left_out = {
        item.nodeid
        for item in items
        if "asyncio" in item.nodeid and item.nodeid.replace("asyncio", "uvloop") in on_uvloop
    }
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """A PostgreSQL; each test makes a database of its own in it."""
    with postgres() as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectStore]:
    """An S3 server; each test makes a bucket of its own in it."""
    with object_store() as running:
        yield running
