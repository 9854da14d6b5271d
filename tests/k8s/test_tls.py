"""Component tls: with the environment that it sets, processes trust each other's certificates.

The certificates are those of an authority of the test, as cert-manager's would be; the component's
paths below /tls are moved into a folder.
"""

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import Authority

from k8s.cluster import ROOT

TLS = ROOT / "k8s/components/tls"
_ASK = """
import asyncio, sys
from serve.app.internal_http import InternalConnection
from serve.app.tls import client_context
from serve.settings import from_environment

async def ask():
    settings = from_environment()
    async with InternalConnection(sys.argv[1], trust=lambda: client_context(settings)) as line:
        print((await line.get("/")).status)

asyncio.run(ask())
"""
_STORAGE = """
import obstore, sys
from obstore.store import HTTPStore

print(bytes(obstore.get(HTTPStore.from_url(sys.argv[1]), "x").bytes()).decode())
"""


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        """Nothing is to be said."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def renewed(authority: Authority) -> Iterator[str]:
    """A process that has a newer certificate than the one that asks it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("renewed"))
    server = HTTPServer(("127.0.0.1", 0), _Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def variables(part: str) -> dict[str, str]:
    """What the component adds to the environment of a Deployment's only container."""
    pod = yaml.safe_load((TLS / f"{part}.yaml").read_text())["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


def environment(authority: Authority, part: str, *without: str, **more: Path) -> dict[str, str]:
    """That and the settings of the component, with its files where they are here.

    `more`: other places, by the name of the file or folder.
    """
    data = yaml.safe_load((TLS / "settings.yaml").read_text())["data"]
    cert, key = authority.issue("own")
    places = {
        "/tls/tls.crt": cert,
        "/tls/tls.key": key,
        "/tls/ca.crt": more.get("ca", authority.path),
        "/etc/ssl/certs": more.get("certs", "/etc/ssl/certs"),
    }
    found = data | variables(part)
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith("SERVEGATE_")},
        **{
            name: str(places.get(text, text)) for name, text in found.items() if name not in without
        },
    }


def run(code: str, url: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, url], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("part", ["gateway", "control"])
def test_a_process_trusts_one_whose_certificate_was_renewed(
    authority: Authority, renewed: str, part: str
) -> None:
    done = run(_ASK, renewed, environment(authority, part))
    assert done.stdout == "200\n", done.stderr


def test_without_the_authority_it_would_not(authority: Authority, renewed: str) -> None:
    done = run(_ASK, renewed, environment(authority, "gateway", "SSL_CERT_FILE"))
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


def test_the_bucket_is_trusted_by_the_list_of_the_machine_as_well(
    authority: Authority, renewed: str, tmp_path: Path
) -> None:
    """The library of the storage makes its own list, of the same two variables."""
    hashed = tmp_path / "machine"
    hashed.mkdir()
    (hashed / "0123abcd.0").symlink_to(authority.path)
    other = tmp_path / "other"
    other.mkdir()
    env = environment(authority, "control", ca=Authority(other).path, certs=hashed)
    done = run(_STORAGE, renewed, env)
    assert done.stdout == "ok\n", done.stderr
