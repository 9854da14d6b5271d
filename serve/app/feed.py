"""The feed: brings snapshots from the control plane to a worker, and keeps the last one on disk.

The long poll says which generation the worker serves, so it is also the acknowledgement. While the
control plane is away the last snapshot stays in force, and a worker that starts meanwhile begins
with the one on disk.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from serve.app.internal_http import InternalConnection
from serve.core.errors import Invalid
from serve.core.snapshot import Snapshot
from serve.proxy.gateway import LiveSnapshot

_log = logging.getLogger("servegate.feed")
POLL_TIMEOUT = 40.0  # seconds; the control plane answers after 25 at the latest
CONNECT_TIMEOUT = 2.0
FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0
PATIENCE = 8  # polls that fail before it is worth a warning: about five seconds
FIRST_PATIENCE = 60  # while the control plane starts, too: about a minute


class Feed:
    """One worker's source of snapshots."""

    def __init__(
        self,
        live: LiveSnapshot,
        *,
        url: str,
        secret: str,
        worker: str,
        saved: Path,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._live = live
        self._line = InternalConnection(url, trust=trust)
        self._headers = {"authorization": f"Bearer {secret}"}
        self._worker = worker
        self._saved = saved

    def __repr__(self) -> str:
        return f"<Feed {self._line!r} worker={self._worker}>"

    def restore(self) -> bool:
        """Put the snapshot on disk in force; whether there was one that could be read."""
        try:
            snapshot = Snapshot.from_json(json.loads(self._saved.read_text("utf-8")))
        except FileNotFoundError:
            return False
        except (OSError, ValueError, RecursionError, Invalid) as error:
            _log.warning("cannot read the saved snapshot: %s", error)
            return False
        _log.info("serving generation %d from disk", snapshot.generation)
        return self._live.swap(snapshot)

    async def run(self) -> None:
        """Follow the control plane until cancelled."""
        pause, away, patience = FIRST_PAUSE, 0, FIRST_PATIENCE
        async with self._line:
            while True:
                try:
                    await self._poll()
                except (OSError, ValueError, Invalid) as error:
                    away += 1
                    if away == PATIENCE < patience:
                        _log.info("waiting for the control plane to start")
                    if away == patience:
                        _log.warning("no snapshot from the control plane: %s", error or type(error))
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(pause * 2, LAST_PAUSE)
                else:
                    if away >= patience:
                        _log.info("the control plane responds again")
                    pause, away, patience = FIRST_PAUSE, 0, PATIENCE

    async def _poll(self) -> None:
        query = urlencode({"worker": self._worker, "after": self._live.generation})
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await self._line.connect()
        async with asyncio.timeout(POLL_TIMEOUT):
            answer = await self._line.get(f"/internal/snapshot?{query}", self._headers)
        if answer.status == 204:
            return
        if answer.status != 200:
            raise Invalid(f"the control plane responded with status {answer.status}")
        snapshot = Snapshot.from_json(json.loads(answer.body))
        if self._live.swap(snapshot):
            _log.debug("serving generation %d", snapshot.generation)
            self._save(answer.body)

    def _save(self, data: bytes) -> None:
        """Replace the file whole; a disk that is full must not stop the worker."""
        scratch = self._saved.with_name(f"{self._saved.name}.{os.getpid()}")
        try:
            descriptor = os.open(scratch, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            scratch.replace(self._saved)
        except OSError as error:
            _log.warning("cannot save the snapshot to disk: %s", error)
            with contextlib.suppress(OSError):
                scratch.unlink()
