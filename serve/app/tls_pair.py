"""A certificate chain and its private key, read from PEM files and found to go together.

Both files are read once, and OpenSSL is given what was read: a pair that is exchanged on disk at
this very moment is never half old and half new. OpenSSL reads certificates from files only, so the
bytes go through an anonymous file in memory (memfd_create(2)), which no disk sees.
"""

import os
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from serve.core.errors import CannotStart

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
_SEQUENCE, _UTC_TIME, _VERSION = 0x30, 0x17, 0xA0  # tags of DER


@dataclass(frozen=True, slots=True)
class Pair:
    """The PEM text of chain and key. `begins` and `ends` are seconds of the epoch: when all of the
    chain is valid."""

    chain: bytes
    key: bytes
    begins: float
    ends: float

    @classmethod
    def read(cls, chain: Path, key: Path) -> "Pair":
        """Read and check both; `CannotStart` says what is wrong, except with the dates."""
        text, secret = _bytes(chain, "certificate"), _bytes(key, "private key")
        found = certificates(text)
        if not found:
            raise CannotStart(
                f"{chain} contains no certificate",
                try_this="use a PEM file that starts with the server certificate",
            )
        try:
            dates = [_validity(ssl.PEM_cert_to_DER_cert(one)) for one in found]
            pair = cls(text, secret, max(one[0] for one in dates), min(one[1] for one in dates))
            pair.give_to(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        except ssl.SSLError as error:
            raise _unusable(chain, key, error) from error
        except (ValueError, IndexError) as error:
            raise CannotStart(f"{chain} or {key} cannot be read", why=str(error)) from error
        return pair

    def give_to(self, context: ssl.SSLContext) -> None:
        """Let this context use the pair in every handshake from now on."""
        descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(self.key + b"\n" + self.chain)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
        finally:
            os.close(descriptor)


def certificates(text: bytes) -> list[str]:
    """The certificates of a PEM file, each as PEM, in their order."""
    return _CERTIFICATE.findall(text.decode("ascii", "replace"))


def day(moment: float) -> str:
    """A moment of the epoch for people."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotStart(
            f"the {what} {path} cannot be read",
            why=error.strerror or str(error),
            try_this="pass --tls-cert and --tls-key with files that this user can read",
        ) from error


def _no_password() -> str:
    raise ValueError("the private key is encrypted, and its password cannot be entered here")


def _unusable(chain: Path, key: Path, error: ssl.SSLError) -> CannotStart:
    if error.reason == "KEY_VALUES_MISMATCH":
        return CannotStart(
            f"the private key {key} does not belong to the certificate {chain}",
            try_this="use the key that the certificate was issued for",
        )
    reason = (error.reason or "unknown reason").replace("_", " ").lower()
    return CannotStart(f"{chain} and {key} cannot be used", why=reason, try_this="use PEM files")


def _validity(der: bytes) -> tuple[float, float]:
    """From when to when a certificate is valid, in seconds of the epoch; see RFC 5280, 4.1.

    Certificate ::= { tbsCertificate { [0] version, serial, signature, issuer, validity, … }, … }
    """
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, after = _element(der, at)
    if tag == _VERSION:
        at = after
    for _ in range(3):
        _, _, at = _element(der, at)
    tag, at, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("not an X.509 certificate")
    kind, start, end = _element(der, at)
    begins = _moment(kind, der[start:end])
    kind, start, end = _element(der, end)
    return begins, _moment(kind, der[start:end])


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The element of DER that begins there: its tag, where its content begins, and where it ends.

    A length above 127 follows in as many bytes as the low bits of the first one say.
    """
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    return tag, start, start + length


def _moment(tag: int, text: bytes) -> float:
    """UTCTime has two digits for the year: 50 to 99 are of the last century."""
    words = text.decode("ascii")
    if tag == _UTC_TIME:
        words = ("19" if words >= "50" else "20") + words
    return datetime.strptime(words, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
