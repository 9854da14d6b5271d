"""What all tests share: servers that nobody stops, and property tests that try the same each time.

Property tests write nothing.
"""

import os
import signal
import sys
from collections.abc import Iterator

import durations
import pytest
from database import PostgresServer, postgres
from hypothesis import settings
from object_store import ObjectStore, object_store

# The package is compiled once, and not by each process that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads, which start with each process and spin
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before ONNX Runtime is imported by any test
# Who runs this in the background of a shell ignores SIGINT, and so would all children that are to
# be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("repeatable", database=None, deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    durations.register(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start Tritons or TensorFlow come first; short ones fill the gaps at the end."""
    slow = {item.path for item in items if {"triton", "tensorflow"} & set(item.keywords)}
    items.sort(key=lambda item: item.path not in slow)


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
