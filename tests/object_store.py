"""A real S3 server for tests: moto in a process of its own, on a free port, with buckets.

    with object_store() as s3:
        storage = Storage.of(s3.bucket("models"), **s3.config)
        environment = {**os.environ, **s3.environment}     # for child processes

Each bucket is new, so tests can share one server.
"""

import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from serve.processes.kernel import die_with

_NAMES = itertools.count(1)
_KEY, _SECRET, _REGION = "test-key", "test-secret", "us-east-1"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The server at `endpoint`, an http:// address without a path."""

    endpoint: str
    config: dict[str, str] = field(init=False)  # for Storage.of
    environment: dict[str, str] = field(init=False)  # for processes

    def __post_init__(self) -> None:
        config = {
            "endpoint": self.endpoint,
            "access_key_id": _KEY,
            "secret_access_key": _SECRET,
            "region": _REGION,
        }
        environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": _REGION,
            "AWS_DEFAULT_REGION": _REGION,
        }
        object.__setattr__(self, "config", config)
        object.__setattr__(self, "environment", environment)

    def bucket(self, prefix: str = "servegate") -> str:
        """The URL of a prefix in a new bucket."""
        name = f"bucket-{next(_NAMES)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        return f"s3://{name}/{prefix}"


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server while the block runs; it dies with this process in any case."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=partial(die_with, os.getpid()),
    )
    assert process.stderr is not None
    try:
        endpoint = _address(process.stderr)
        # Its log must not fill the pipe; reading ends with the process.
        reader = threading.Thread(target=deque, args=(process.stderr, 0))
        reader.start()
        yield ObjectStore(endpoint)
    finally:
        process.kill()
        process.wait()
    reader.join()
    process.stderr.close()


def _address(log: IO[bytes]) -> str:
    for line in log:
        if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
            return found[0].decode()
    raise AssertionError("moto does not start")
