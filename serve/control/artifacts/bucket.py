"""Objects in a bucket: S3, Google Cloud Storage or Azure, through obstore.

Credentials, region and endpoint come from the provider's usual environment variables. Large objects
are read range by range: each is a request of its own, which obstore repeats when it fails, so that
a connection that breaks late costs a few MiB.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from serve.control.artifacts.objects import ListedObject
from serve.core.errors import CannotStart, NoSpace, NotFound, Unavailable

_PIECE = 8 << 20  # bytes of one range, and of one part of an upload
_MOST_PARTS = 9_000  # S3 takes 10,000
_AT_ONCE = 4  # parts in flight
_FULL = ("507 Insufficient Storage", "StorageFull", "QuotaExceeded")  # as MinIO and Ceph say it
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")
_RETRIES: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"max_backoff": timedelta(seconds=3)},
}


class BucketObjects:
    """The objects below one prefix. `config` goes before the environment, in obstore's names."""

    def __init__(self, url: str, **config: str) -> None:
        self._url = url
        endpoints = [config.get("endpoint", ""), *(os.environ.get(n, "") for n in _ENDPOINTS)]
        clear = any(endpoint.startswith("http://") for endpoint in endpoints)
        options: Any = {"client_options": {"allow_http": True}} if clear else {}
        try:
            given: Any = {**options, **config}
            self._store: ObjectStore = from_url(url, retry_config=_RETRIES, **given)
        except (BaseError, ValueError) as error:
            raise CannotStart(f"the storage {url} cannot be used", why=_first(error)) from error

    def __repr__(self) -> str:
        return f"<BucketObjects {self._url}>"

    async def size(self, key: str) -> int | None:
        """The bytes of an object; None when there is none."""
        with self._telling():
            try:
                return (await obstore.head_async(self._store, key))["size"]
            except FileNotFoundError:
                return None

    async def move_in(self, key: str, path: Path, size: int) -> None:
        """Send the file, in parts that are there all together or not at all."""
        with self._telling():
            part = max(_PIECE, size // _MOST_PARTS)
            await obstore.put_async(
                self._store, key, path, chunk_size=part, max_concurrency=_AT_ONCE
            )

    async def put(self, key: str, data: bytes) -> None:
        """Write a small object, or replace it."""
        with self._telling():
            await obstore.put_async(self._store, key, data, use_multipart=False)

    async def put_new(self, key: str, data: bytes) -> bool:
        """Write a small object unless there is one (`If-None-Match: *`); whether it was written."""
        with self._telling():
            try:
                await obstore.put_async(self._store, key, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

    async def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The object from byte `start` on, in pieces; `NotFound` when there is none."""
        size = await self.size(key)
        if size is None:
            raise NotFound(f"the storage has no '{key}'")
        while start < size:
            end = min(start + _PIECE, size)
            with self._telling():
                piece = await obstore.get_range_async(self._store, key, start=start, end=end)
            yield bytes(piece)
            start = end

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        """Every object whose key starts with these whole parts."""
        with self._telling():
            async for batch in obstore.list(self._store, prefix):
                for meta in batch:
                    yield ListedObject(
                        meta["path"], meta["size"], meta["last_modified"].timestamp()
                    )

    async def remove(self, key: str) -> None:
        """Take an object away; one that is not there is no error."""
        with self._telling(), contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._store, key)

    def path(self, key: str) -> None:
        """A bucket is nowhere on this machine."""
        return

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """What the bucket refuses, in words; what obstore says goes on for pages."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            if any(word in str(error) for word in _FULL):
                raise NoSpace(f"the storage {self._url} is full", why=_first(error)) from error
            raise Unavailable(
                f"the storage {self._url} does not answer", why=_first(error)
            ) from error


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
