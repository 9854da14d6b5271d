"""Whom commands trust over TLS, and what they show: the certificates of the environment.

| variable                | holds                                                              |
|-------------------------|--------------------------------------------------------------------|
| `SERVEGATE_CACERT`      | who signed the gateway's certificate, or that certificate itself   |
| `SERVEGATE_CLIENT_CERT` | what is shown to a gateway that asks for a certificate             |
| `SERVEGATE_CLIENT_KEY`  | its private key, if that is in a file of its own                   |

All are files in PEM form. Without the first one those are trusted whom this machine trusts.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from serve.core.errors import Invalid

if TYPE_CHECKING:
    import grpc

CACERT, CLIENT_CERT, CLIENT_KEY = (
    "SERVEGATE_CACERT",
    "SERVEGATE_CLIENT_CERT",
    "SERVEGATE_CLIENT_KEY",
)


def trust(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """For clients that use Python's `ssl`; `Invalid` names the variable that holds no such file."""
    context = ssl.create_default_context()
    if name := environment.get(CACERT):
        try:
            context = ssl.create_default_context(cafile=name)
        except OSError as error:
            raise _unreadable(CACERT, name, error) from error
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself will do
    if name := environment.get(CLIENT_CERT):
        try:
            context.load_cert_chain(name, environment.get(CLIENT_KEY) or name)
        except OSError as error:
            raise _unreadable(CLIENT_CERT, name, error) from error
    return context


def channel_credentials(
    environment: Mapping[str, str] = os.environ,
) -> "grpc.ChannelCredentials":
    """The same for gRPC."""
    import grpc

    shown = _read(environment, CLIENT_CERT)
    key = (_read(environment, CLIENT_KEY) or shown) if shown else None
    return grpc.ssl_channel_credentials(_read(environment, CACERT), key, shown)


def _read(environment: Mapping[str, str], variable: str) -> bytes | None:
    name = environment.get(variable)
    if not name:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise _unreadable(variable, name, error) from error


def _unreadable(variable: str, name: str, error: OSError) -> Invalid:
    why = getattr(error, "reason", None) or error.strerror or str(error)
    return Invalid(f"{variable}={name} cannot be used", why=why, try_this="use a PEM file")
