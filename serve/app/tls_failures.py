"""Handshakes that fail: one clear line each, but never more than one of a kind in a second.

Event loops drop what a handshake raises. So it is caught where both loops call OpenSSL: in the
`SSLObject` of the connection, whose class a context may choose (`SSLContext.sslobject_class`).
"""

import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, Metric

_log = logging.getLogger("servegate.tls")
_QUIET = 1.0  # seconds between two lines of a kind


@dataclass(frozen=True, slots=True)
class HandshakeFailure:
    """Why a handshake failed: a word for metrics, a sentence for people."""

    kind: str
    sentence: str


_NO_TLS = HandshakeFailure(
    "no_tls", "a client did not use TLS; use https, or a secure gRPC channel"
)
_UNTRUSTED = HandshakeFailure(
    "untrusted",
    "a client does not trust the server certificate; give it the certificate of the CA",
)
_TOO_OLD = HandshakeFailure(
    "no_common_version", "a client offers no supported TLS version or cipher"
)
_FAILURES = {
    "HTTP_REQUEST": _NO_TLS,
    "HTTPS_PROXY_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "TLSV1_ALERT_UNKNOWN_CA": _UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": HandshakeFailure(
        "expired",
        "a client reports that the server certificate has expired; its clock may be wrong",
    ),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": HandshakeFailure(
        "no_client_certificate",
        "a client presented no certificate, but 'tls_client_ca' requires one",
    ),
    "UNSUPPORTED_PROTOCOL": _TOO_OLD,
    "NO_SHARED_CIPHER": _TOO_OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": _TOO_OLD,
}


def failure(error: ssl.SSLError) -> HandshakeFailure:
    """What the server's side of OpenSSL means by this error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeFailure(
            "client_certificate", f"a client certificate was rejected: {error.verify_message}"
        )
    reason = error.reason or "no reason given"
    known = _FAILURES.get(reason)
    return known or HandshakeFailure(
        "other", f"a TLS handshake failed: {reason.replace('_', ' ').lower()}"
    )


class Failures:
    """Counts what fails on all listeners of a process, and tells of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: Counter[tuple[str, str]] = Counter()  # by listener and kind
        self._told: dict[tuple[str, str], tuple[float, int]] = {}  # when, and the count by then

    def __repr__(self) -> str:
        return f"<Failures {dict(self._counts)}>"

    def note(self, listener: str, error: ssl.SSLError) -> None:
        """One handshake on this listener failed."""
        found = failure(error)
        key = (listener, found.kind)
        self._counts[key] += 1
        now, count = self._clock(), self._counts[key]
        last, before = self._told.get(key, (now - _QUIET, count - 1))
        if now - last >= _QUIET:
            more = count - before - 1
            also = f" (and {more} more since the last line)" if more else ""
            _log.warning("%s: %s%s", listener, found.sentence, also)
            self._told[key] = (now, count)

    def reporting(self, listener: str) -> type[ssl.SSLObject]:
        """The class of the TLS connections of this listener."""
        note = self.note

        class Reporting(ssl.SSLObject):
            """A connection that tells why its handshake failed."""

            def do_handshake(self) -> None:
                """See `ssl.SSLObject`."""
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    note(listener, error)
                    raise

        return Reporting

    def collect(self) -> Iterable[Metric]:
        """The counts, for Prometheus."""
        failed = CounterMetricFamily(
            "servegate_tls_handshake_failures",
            "Failed TLS handshakes, by listener and reason",
            labels=("listener", "reason"),
        )
        for key, count in self._counts.items():
            failed.add_metric(key, count)
        return (failed,)
