"""TLS on every port of the real program: its clients, its log, and new certificates."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import urllib.request
from datetime import datetime

import harness
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from certificates import Authority
from ports import free_ports

PATIENCE = 20.0
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def variables(pair, **more):
    names = {"SERVEGATE_TLS_CERT": str(pair[0]), "SERVEGATE_TLS_KEY": str(pair[1])}
    return names | {f"SERVEGATE_{name.upper()}": str(value) for name, value in more.items()}


@contextlib.contextmanager
def without_triton(state, env):
    """The program in front of a Triton that is not there: every port listens."""
    ports = ":".join(map(str, free_ports(3)))
    up = harness.Up(state, "--triton", f"127.0.0.1:{ports}", env=env)
    try:
        yield up
    finally:
        code = up.program.stop()
    assert code == 0, up.program.output


def connected(port, context):
    one = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
    one.connect()
    return one


def live(one):
    one.request("GET", "/v2/health/live")
    with one.getresponse() as answer:
        answer.read()
        return answer.status == 200


def is_open(port, context):
    try:
        with contextlib.closing(connected(port, context)) as one:
            return live(one)
    except OSError:
        return False


def trusting(path, shown=None):
    context = ssl.create_default_context(cafile=str(path))
    if shown:
        context.load_cert_chain(*shown)
    return context


@pytest.mark.slow
def test_clients_that_fail_give_sentences_in_the_log(authority, tmp_path):
    (tmp_path / "else").mkdir()
    stranger = Authority(tmp_path / "else")
    env = variables(authority.issue("one"), tls_client_ca=authority.path)
    good = authority.issue("client", "client")
    with without_triton(tmp_path / "state", env) as up:
        harness.until(lambda: is_open(up.http_port, trusting(authority.path, good)))
        expired = authority.issue("old", "client", ends=datetime(2020, 1, 1))
        assert not is_open(up.http_port, trusting(authority.path, expired))
        assert not is_open(up.http_port, trusting(stranger.path, good))
        with socket.create_connection(("127.0.0.1", up.http_port), timeout=10) as one:
            one.sendall(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert one.recv(100) == b""
        with pytest.raises(Exception, match=r"(?i)unavailable|unreachable|failed to connect"):
            tritonclient.grpc.InferenceServerClient(up.grpc).is_server_live(client_timeout=3)
        said = "http: a client certificate was rejected: certificate has expired"
        up.program.wait_line(said, PATIENCE)
        up.program.wait_line("http: a client does not trust the server certificate", PATIENCE)
        up.program.wait_line("http: a client did not use TLS", PATIENCE)
        up.program.wait_line("grpc: a client did not use TLS", PATIENCE)
    assert "Traceback" not in up.program.output


@pytest.mark.slow
def test_a_new_certificate_is_used_without_a_restart_and_drops_no_connection(authority, tmp_path):
    chain, key = authority.issue("one")
    new_chain, new_key = authority.issue("two")
    context = trusting(authority.path)
    with without_triton(tmp_path / "state", variables((chain, key))) as up:
        for port in (up.http_port, up.admin_port, up.metrics_port):
            harness.until(lambda port=port: shown(port, context))
        kept = connected(up.http_port, context)
        assert live(kept)
        first = shown(up.http_port, context)
        new_chain.replace(chain)
        new_key.replace(key)
        up.program.wait_line("loaded a new certificate", PATIENCE)
        for port in (up.http_port, up.grpc_port, up.admin_port, up.metrics_port):
            harness.until(lambda port=port: shown(port, context) != first, PATIENCE)
        assert live(kept)
        kept.close()
    assert up.program.output.count("loaded a new certificate") == 1


def shown(port, context):
    """The certificate that a port shows now; None while nothing listens there."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as one,
        ):
            return one.getpeercert(binary_form=True)
    except OSError:
        return None


@pytest.mark.slow
def test_nothing_starts_with_a_certificate_that_nobody_would_accept(authority, tmp_path):
    expired = authority.issue("old", ends=datetime(2020, 1, 1))
    good, other = authority.issue("one"), authority.issue("other")
    for pair, why in (
        (expired, "has expired\n  why: it expired on 2020-01-01 00:00 UTC\n  try: request a new"),
        ((good[0], other[1]), "does not belong to the certificate"),
        ((good[0], tmp_path / "nowhere"), "cannot be read\n  why: No such file or directory"),
    ):
        up = harness.Up(tmp_path / "state", "--triton", "127.0.0.1:1:2:3", env=variables(pair))
        try:
            assert up.program.process.wait(PATIENCE) == 1
        except subprocess.TimeoutExpired:
            up.program.stop()
            raise
        assert why in up.program.output
        assert "Traceback" not in up.program.output


@pytest.mark.triton
def test_unmodified_clients_get_their_digits_over_tls(guarded):
    up, key = guarded.up, guarded.keys["predictor"]
    shown = {"authorization": f"Bearer {key}"}
    http_url, grpc_url = f"localhost:{up.http_port}", f"localhost:{up.grpc_port}"
    trusted = {"ca_certs": str(guarded.authority)}
    with tritonclient.http.InferenceServerClient(http_url, ssl=True, ssl_options=trusted) as client:
        for count in (1, 8, 64):
            classify(client, tritonclient.http, count, shown)
    with tritonclient.grpc.InferenceServerClient(
        grpc_url, ssl=True, root_certificates=str(guarded.authority)
    ) as client:
        for count in (1, 8, 64):
            classify(client, tritonclient.grpc, count, shown)
    kept = connected(up.http_port, guarded.context)
    for _ in range(2):
        kept.request("POST", "/v2/models/digits/infer", SEVEN + b" " * (3 << 20), shown)
        with kept.getresponse() as answer:
            assert json.loads(answer.read())["outputs"] and answer.status == 200
    kept.close()
    url = f"https://localhost:{up.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10, context=guarded.context) as answer:
        assert "servegate_tls_not_after_seconds" in answer.read().decode()

    def inferred():
        lines = (up.state.parent / "access.log").read_text().splitlines()
        called = [line for line in map(json.loads, lines) if line["model"] == "digits"]
        return [line for line in called if line["verb"] == "infer"]

    # A worker writes its lines every 100 ms; other tests call this gateway, too.
    harness.until(lambda: len(inferred()) >= 8)
    seen = inferred()
    assert {line["protocol"] for line in seen} == {"http", "grpc"}
    assert all(line["peer"].startswith("127.0.0.1:") for line in seen)


def classify(client, module, count, headers):
    rows = np.zeros((count, 8, 8, 1), np.float32)
    tensor = module.InferInput("x", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    answer = client.infer("digits", [tensor], headers=dict(headers))  # which the client adds to
    assert answer.as_numpy("probabilities").shape == (count, 10)
