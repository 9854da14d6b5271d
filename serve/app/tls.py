"""TLS: one certificate for every listener, read anew when its files change.

| when                                        | what becomes of it                              |
|---------------------------------------------|-------------------------------------------------|
| start: files missing, of two pairs, expired | nothing starts, and a sentence says why         |
| running: a new pair that is good            | every handshake from now on has it              |
| running: a new pair that is not             | the old one stays; said once, tried on and on   |
| running: it ends within 14 days             | a warning a day                                 |

Connections that are open keep what they have: a context is edited, never replaced. The certificates
that clients must show (`tls_client_ca`) are read at start only, since a context can learn to trust
somebody, but not forget it.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.app.tls_failures import Failures
from serve.app.tls_pair import Pair, certificates, day
from serve.core.errors import CannotStart
from serve.settings import Settings

_log = logging.getLogger("servegate.tls")
HTTP, HTTP2 = "http/1.1", "h2"  # ALPN, RFC 7301
_INTERVAL = 2.0  # seconds between two looks at the files
_DAY = 86400.0  # seconds
_SOON = 14 * _DAY
_TWICE = 2

Stamp = tuple[tuple[int, int, int], ...]  # what tells a file from the one before it


class Tls:
    """The certificate of one process, and the contexts of its listeners.

    `is_loud` belongs to one process of a machine: it tells of files that change and dates that
    come near, which all of them see.
    """

    def __init__(
        self,
        cert: Path,
        key: Path,
        client_ca: Path | None = None,
        *,
        is_loud: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._wall = wall
        self._is_loud = is_loud
        self._contexts: list[ssl.SSLContext] = []
        self._failures = Failures(clock)
        self._stamp = self._look_at_files()
        self._refused: tuple[Stamp, int] = (self._stamp, 0)  # and how often
        self._pair = Pair.read(cert, key)
        self._warned = wall() - _DAY

    def __repr__(self) -> str:
        return f"<Tls {self._cert} until {day(self._pair.ends)}>"

    @classmethod
    def of(cls, settings: Settings, *, is_loud: bool = False) -> "Tls | None":
        """What the settings ask for; None when everything is in clear."""
        if not settings.tls_cert:
            if settings.tls_key or settings.tls_client_ca:
                name = "tls_key" if settings.tls_key else "tls_client_ca"
                raise CannotStart(
                    f"'{name}' is set, but 'tls_cert' is not", try_this="pass --tls-cert FILE"
                )
            return None
        client_ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None
        key = settings.tls_key or settings.tls_cert
        return cls(Path(settings.tls_cert), Path(key), client_ca, is_loud=is_loud)

    @classmethod
    def for_start(cls, settings: Settings) -> "Tls | None":
        """For whoever starts everything: `CannotStart` when no client would accept the dates, too.

        A child that is started again takes what is there: refusing would end what still runs.
        """
        tls = cls.of(settings, is_loud=True)
        if tls is not None and (problem := tls._wrong_dates(tls._pair)):
            raise problem
        return tls

    def listener(self, name: str, protocol: str) -> ssl.SSLContext:
        """The context of a listener, which lives as long as this; `name` is for log and metrics."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols([protocol])
        context.sslobject_class = self._failures.reporting(name)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self._client_ca)
            except OSError as error:
                raise CannotStart(
                    f"the certificates in {self._client_ca} cannot be read",
                    why=getattr(error, "reason", None) or error.strerror or str(error),
                    try_this="pass --tls-client-ca with a PEM file",
                ) from error
        self._pair.give_to(context)
        self._contexts.append(context)
        return context

    def look(self) -> None:
        """See whether the files have changed, and whether the end comes near."""
        stamp = self._look_at_files()
        if stamp != self._stamp:
            self._renew(stamp)
        now, ends = self._wall(), self._pair.ends
        if ends - now < _SOON and now - self._warned >= _DAY:
            self._warned = now
            if ends > now:
                self._tell(logging.WARNING, f"the certificate {self._cert} expires on {day(ends)}")
            else:
                self._tell(logging.ERROR, f"the certificate {self._cert} expired on {day(ends)}")

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_INTERVAL)

    def collect(self) -> Iterable[Metric]:
        """The numbers, for Prometheus."""
        return (_end(self._pair.ends), *self._failures.collect())

    def _renew(self, stamp: Stamp) -> None:
        """Take the new pair if it is good; if it is not, say so once, and try it again next time.

        Nothing is said at the first look: somebody may be about to write the second file.
        """
        try:
            pair = Pair.read(self._cert, self._key)
            if problem := self._wrong_dates(pair):
                raise problem
        except CannotStart as error:
            before, times = self._refused
            self._refused = (stamp, times + 1 if stamp == before else 1)
            if self._refused[1] == _TWICE:
                self._tell(logging.ERROR, f"keeping the current certificate: {error}")
            return
        for context in self._contexts:
            pair.give_to(context)
        self._pair, self._stamp = pair, stamp
        self._warned = self._wall() - _DAY
        self._tell(logging.INFO, f"loaded a new certificate, which expires on {day(pair.ends)}")

    def _tell(self, level: int, sentence: str) -> None:
        _log.log(level if self._is_loud else logging.DEBUG, "%s", sentence)

    def _wrong_dates(self, pair: Pair) -> CannotStart | None:
        """Why clients would not accept the pair now; None while it is valid."""
        now = self._wall()
        if pair.ends <= now:
            return CannotStart(
                f"the certificate {self._cert} has expired",
                why=f"it expired on {day(pair.ends)}",
                try_this="request a new certificate from its CA",
            )
        if pair.begins > now:
            return CannotStart(
                f"the certificate {self._cert} is not valid yet",
                why=f"it is valid from {day(pair.begins)}",
                try_this="use another certificate, or set the clock of this machine",
            )
        return None

    def _look_at_files(self) -> Stamp:
        """Symbolic links are followed, which is how Kubernetes exchanges both files at once."""
        seen = []
        for path in (self._cert, self._key):
            try:
                found = path.stat()
            except OSError:
                seen.append((0, 0, 0))
            else:
                seen.append((found.st_mtime_ns, found.st_ino, found.st_size))
        return tuple(seen)


def families() -> Iterable[Metric]:
    """What `collect` gives, without numbers: for the reference."""
    return (_end(), *Failures(time.monotonic).collect())


def _end(*moments: float) -> Metric:
    family = GaugeMetricFamily(
        "servegate_tls_not_after_seconds", "Unix time at which the certificate expires"
    )
    for moment in moments:
        family.add_metric((), moment)
    return family


def client_context(settings: Settings) -> ssl.SSLContext:
    """How a worker trusts a control plane elsewhere: by those whom this machine trusts.

    Our own certificate is trusted, too, and shown to who asks for one: a machine of which all
    processes share a certificate needs nothing more. Names are checked in either case. What goes
    wrong is an OSError, as it is with every other reason not to reach somebody.
    """
    context = ssl.create_default_context()
    if settings.tls_cert:
        try:
            pair = Pair.read(Path(settings.tls_cert), Path(settings.tls_key or settings.tls_cert))
        except CannotStart as error:
            raise OSError(str(error)) from error
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # itself, without who signed it
        context.load_verify_locations(cadata=certificates(pair.chain)[0])
        pair.give_to(context)
    return context
