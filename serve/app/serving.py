"""Serving: uvicorn as one part of a process that has its own signals."""

import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its process."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                date_header=False,
                interface="asgi3",
                proxy_headers=False,
                http="httptools",
                ws="none",
                **options,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not this server's business."""
        yield
