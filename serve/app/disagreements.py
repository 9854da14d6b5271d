"""A worker gives the control plane some calls to which a candidate responds differently."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from urllib.parse import urlencode

from serve.app.internal_http import InternalConnection
from serve.core.errors import ServegateError
from serve.processes.compute import ComputeProcess
from serve.proxy.mirrors import MirroredCall

PATIENCE = 30.0  # seconds for the control plane, which calls both versions
_log = logging.getLogger("servegate.mirror")


class DisagreementReporter:
    """Sends their inputs; the control plane calls both versions again and keeps what they say."""

    def __init__(
        self,
        compute: ComputeProcess,
        *,
        url: str,
        secret: str,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._compute = compute
        self._url = url
        self._trust = trust
        self._headers = {
            "authorization": f"Bearer {secret}",
            "content-type": "application/octet-stream",
        }

    def __repr__(self) -> str:
        return f"<DisagreementReporter {self._url}>"

    async def keep(self, call: MirroredCall) -> None:
        """Send one; what goes wrong is only logged."""
        served, candidate = call.choice.target, call.target
        about = {"model": served.model, "a": served.version, "b": candidate.version}
        try:
            body = b"".join(call.pieces)
            data = await self._compute.run(_archive, call.protocol, call.head, body)
            async with (
                asyncio.timeout(PATIENCE),
                InternalConnection(self._url, trust=self._trust) as line,
            ):
                path = f"/internal/disagreements?{urlencode(about)}"
                answer = await line.post(path, self._headers, data)
            if answer.status != 204:
                raise ValueError(f"the control plane responded with status {answer.status}")
        except (ServegateError, OSError, ValueError) as error:
            _log.info("cannot keep a mirrored call of %s: %s", served.model, error or type(error))


def _archive(protocol: str, head: bytes, body: bytes) -> bytes:
    """In the child process, which imports NumPy; a worker never does."""
    from serve.tensors.mirrored import inputs_archive

    return inputs_archive(protocol, head, body)
