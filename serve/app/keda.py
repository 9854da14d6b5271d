"""KEDA's port: a gRPC server of its own in the control process, with everybody's certificate.

It is open only while this process leads, so that a client with several addresses finds the one that
does. With `tls_client_ca` whoever has a certificate of theirs may ask, since that is what KEDA can
show; otherwise a key is needed where the admin API needs one, and any key will do.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from serve.admin.keda.scaler import ExternalScaler
from serve.admin.keda.service import Admit, KedaService
from serve.app.tls_pair import Pair
from serve.control.decisions import Decisions
from serve.control.scaling.board import HintBoard
from serve.core.access import Access, Act
from serve.core.errors import CannotStart
from serve.settings import Settings, keys_are_required

_log = logging.getLogger("servegate.keda")
_GRACE = 1.0  # seconds for calls that are being answered when it stops
_AGAIN = 5.0  # seconds between two tries to get the port
_CALLS = 10_000  # at a time; each ScaledObject has two streams
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # the port is ours alone, or not ours
    ("grpc.max_receive_message_length", 1 << 16),
    ("grpc.keepalive_time_ms", 60_000),  # so that streams of those who have vanished end
    ("grpc.keepalive_timeout_ms", 20_000),
)
_Stamp = tuple[tuple[int, int, int], ...]


def keda_of(settings: Settings, board: HintBoard, *, decisions: Callable[[], Decisions]) -> "Keda":
    """The port as the settings have it; without a `keda_port` it does nothing."""
    return Keda(settings, board, admit=_gate(settings, decisions))


class Keda:
    """The port. `admit` raises for a credential that may not ask; `again` is in seconds."""

    def __init__(
        self, settings: Settings, board: HintBoard, *, admit: Admit, again: float = _AGAIN
    ) -> None:
        self._settings = settings
        self._board = board
        self._admit = admit
        self._again = again

    def __repr__(self) -> str:
        return f"<Keda port={self._settings.keda_port}>"

    async def run(self) -> None:
        """Serve until cancelled; a port that somebody else has is tried again and again."""
        if not self._settings.keda_port:
            return
        scaler = ExternalScaler(self._board, wall=time.time)
        handlers = KedaService(scaler, admit=self._admit).handlers()
        server = await self._opened(handlers)
        try:
            await scaler.closed()
        finally:
            scaler.close()
            await server.stop(_GRACE)

    async def _opened(self, handlers: tuple[Any, ...]) -> Any:
        credentials = _credentials(self._settings)
        host, port = self._settings.admin_host, self._settings.keda_port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        level = logging.ERROR
        while True:
            server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_CALLS)
            server.add_generic_rpc_handlers(handlers)
            try:
                if credentials is None:
                    server.add_insecure_port(address)
                else:
                    server.add_secure_port(address, credentials)
            except RuntimeError:  # all that it raises for a port that it does not get
                _log.log(level, "the KEDA scaler cannot listen on port %d of %s", port, host)
                level = logging.DEBUG  # said once
                await asyncio.sleep(self._again)
                continue
            await server.start()
            _log.info("the KEDA scaler listens on port %d of %s", port, host)
            return server


class Certificate:
    """The pair in the files of the settings, read again when they have changed.

    gRPC asks for it at each handshake, from a thread of its own. What is no good pair changes
    nothing; the listeners beside this one tell about it.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self._files = (cert, key)
        self._stamp = self._look()
        self._pair = Pair.read(cert, key)

    def __repr__(self) -> str:
        return f"<Certificate {self._files[0]}>"

    def pair(self) -> Pair:
        """The newest good one."""
        stamp = self._look()
        if stamp != self._stamp:
            with contextlib.suppress(CannotStart):
                pair = Pair.read(*self._files)
                if pair.begins <= time.time() < pair.ends:
                    self._pair, self._stamp = pair, stamp
        return self._pair

    def _look(self) -> _Stamp:
        seen = []
        for path in self._files:
            with contextlib.suppress(OSError):
                found = path.stat()
                seen.append((found.st_mtime_ns, found.st_ino, found.st_size))
        return tuple(seen)


def _credentials(settings: Settings) -> Any:
    """What the port shows, and whom it lets in; None in clear."""
    if not settings.tls_cert:
        return None
    certificate = Certificate(Path(settings.tls_cert), Path(settings.tls_key or settings.tls_cert))
    trusted = _read(settings.tls_client_ca) if settings.tls_client_ca else None

    def shown() -> Any:
        pair = certificate.pair()
        return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)], trusted)

    return grpc.dynamic_ssl_server_credentials(shown(), shown, trusted is not None)


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CannotStart(
            f"the certificates in {file} cannot be read",
            why=error.strerror or str(error),
            try_this="pass --tls-client-ca with a PEM file",
        ) from error


def _gate(settings: Settings, decisions: Callable[[], Decisions]) -> Admit:
    def admit(credential: bytes) -> None:
        known = decisions()
        if settings.tls_client_ca:
            return  # whoever comes so far has shown a certificate
        if keys_are_required(settings, known.guarded, host=settings.admin_host):
            Access(known.keys(), is_required=True, wall=time.time).check(credential, Act.ASK)

    return admit
