"""Whom commands trust over TLS: what the environment says."""

import socket
import ssl
import threading
from pathlib import Path

import pytest
from certificates import Authority

from serve.app.tls import HTTP, Tls
from serve.core.errors import Invalid
from serve.trust import channel_credentials, trust


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """One connection; what either side has against it is raised by the client."""
    here, there = socket.socketpair()

    def accept() -> None:
        with there:
            try:
                server.wrap_socket(there, server_side=True).sendall(b"x")
            except OSError:
                pass

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        with here, client.wrap_socket(here, server_hostname="localhost") as one:
            if one.recv(1) != b"x":
                raise ssl.SSLError("refused")
    finally:
        accepting.join()


def test_the_signer_or_the_certificate_itself_may_be_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.issue("one")
    server = Tls(chain, key).listener("http", HTTP)
    for path in (authority.path, chain):
        handshake(server, trust({"SERVEGATE_CACERT": str(path)}))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, trust({}))


def test_a_certificate_is_shown_to_a_gateway_that_asks_for_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = Tls(*authority.issue("one"), authority.path).listener("http", HTTP)
    chain, key = authority.issue("client", "client")
    trusted = {"SERVEGATE_CACERT": str(authority.path)}
    shown = {"SERVEGATE_CLIENT_CERT": str(chain), "SERVEGATE_CLIENT_KEY": str(key)}
    handshake(server, trust(trusted | shown))
    assert channel_credentials(trusted | shown) is not None
    with pytest.raises(OSError):
        handshake(server, trust(trusted))


def test_a_variable_that_names_no_such_file_is_told(tmp_path: Path) -> None:
    for name in ("SERVEGATE_CACERT", "SERVEGATE_CLIENT_CERT"):
        environment = {name: str(tmp_path / "nowhere")}
        for read in (trust, channel_credentials):
            with pytest.raises(Invalid, match=f"{name}=.*nowhere cannot be used: No such file"):
                read(environment)
