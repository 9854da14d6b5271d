"""Asks one Triton whether it is up, and whether it is the one that was meant."""

import asyncio
import json
from contextlib import suppress
from enum import Enum, auto

from serve.core.replicas import Replica

_PATIENCE = 2.0  # seconds for one question and its answer
_LONGEST_BODY = 1 << 20  # bytes


class ProbeResult(Enum):
    NONE = auto()  # nobody there yet, or somebody else
    NOT_LIVE = auto()  # it has started and found that it cannot serve; it will not recover
    LIVE = auto()


async def look(replica: Replica, server_id: str) -> ProbeResult:
    """How the Triton with this `--id` is; the id tells it from one that took the port before.

    Triton opens its HTTP port when it has read its repository, and the port of its metrics last.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            _, about = await _get(replica.host, replica.http_port, "/v2")
            if json.loads(about).get("name") != server_id:
                return ProbeResult.NONE
            live, _ = await _get(replica.host, replica.http_port, "/v2/health/live")
            if live != 200:
                return ProbeResult.NOT_LIVE
            metrics, _ = await _get(replica.host, replica.metrics_port, "/metrics")
            return ProbeResult.LIVE if metrics == 200 else ProbeResult.NONE
    except (OSError, EOFError, ValueError, AttributeError, asyncio.LimitOverrunError):
        return ProbeResult.NONE  # refused, timed out (an OSError, too), or not a Triton


async def _get(host: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body of a GET; a body without Content-Length counts as empty."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        length = 0
        for field in fields:
            name, _, value = field.partition(":")
            if name.lower() == "content-length":
                length = min(int(value), _LONGEST_BODY)
        return int(status.split()[1]), await reader.readexactly(length)
    except IndexError:
        raise ValueError(f"{path} of {host}:{port} does not respond in HTTP") from None
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
