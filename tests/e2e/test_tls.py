"""TLS on every port of the real program: its clients, shared memory, and new certificates."""

import http.client
import json
import socket
import ssl
import time
import urllib.request

import harness
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shared_memory
from certificates import Authority
from ports import free_ports
from tritonclient.utils import InferenceServerException

PATIENCE = 20.0
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


def connected(port, context):
    one = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
    one.connect()
    return one


def live(one):
    one.request("GET", "/v2/health/live")
    with one.getresponse() as answer:
        answer.read()
        return answer.status == 200


@pytest.mark.slow
def test_a_new_certificate_is_used_without_a_restart_and_drops_no_connection(tmp_path):
    authority = Authority(tmp_path)
    chain, key = authority.issue("one")
    new_chain, new_key = authority.issue("two")
    context = ssl.create_default_context(cafile=str(authority.path))
    env = {"SERVEGATE_TLS_CERT": str(chain), "SERVEGATE_TLS_KEY": str(key)}
    nobody = ":".join(map(str, free_ports(3)))  # every port listens without a Triton, too
    up = harness.Up(tmp_path / "state", "--triton", f"127.0.0.1:{nobody}", env=env)
    try:
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
    finally:
        assert up.program.stop() == 0, up.program.output
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


def secured(guarded, module):
    """Triton's client of the gateway with keys."""
    ca, up = str(guarded.authority), guarded.up
    if module is tritonclient.http:
        url, options = f"localhost:{up.http_port}", {"ca_certs": ca}
        return module.InferenceServerClient(url, ssl=True, ssl_options=options)
    url = f"localhost:{up.grpc_port}"
    return module.InferenceServerClient(url, ssl=True, root_certificates=ca)


@pytest.mark.triton
def test_unmodified_clients_get_their_digits_over_tls(guarded):
    up, key = guarded.up, guarded.keys["predictor"]
    shown = {"authorization": f"Bearer {key}"}
    for module in (tritonclient.http, tritonclient.grpc):
        with secured(guarded, module) as client:
            for count in (1, 8, 64):
                classify(client, module, count, shown)
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


def unregister(triton, region, **shown):
    """Triton lets go of a region a moment after it has answered."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return triton.unregister_system_shared_memory(region, **shown)
        except InferenceServerException as error:
            assert "currently in use" in str(error) and time.monotonic() < end


@pytest.mark.triton
@pytest.mark.parametrize("protocol", ["http", pytest.param("grpc", marks=pytest.mark.slow)])
def test_an_admin_key_uses_shared_memory_in_front_of_one_local_triton(guarded, protocol):
    module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
    shown = {"headers": {"authorization": f"Bearer {guarded.keys['admin']}"}}
    name = f"/servegate_test_{guarded.up.http_port}"
    region = shared_memory.create_shared_memory_region("r", name, 256)
    try:
        with secured(guarded, module) as triton:
            row = np.zeros((1, 8, 8, 1), np.float32)
            shared_memory.set_shared_memory_region(region, [row])
            triton.register_system_shared_memory("r", name, 256, **shown)
            as_json = {"as_json": True} if protocol == "grpc" else {}
            assert "r" in json.dumps(triton.get_system_shared_memory_status(**as_json, **shown))
            x = module.InferInput("x", row.shape, "FP32")
            x.set_shared_memory("r", 256)
            answer = triton.infer("digits", [x], **shown).as_numpy("probabilities")
            assert answer.shape == (1, 10)
            unregister(triton, "r", **shown)
            with pytest.raises(InferenceServerException):
                triton.infer("digits", [x], **shown)
    finally:
        shared_memory.destroy_shared_memory_region(region)
