"""Forked workers: what they share and use, and what the metrics say when one is replaced."""

import socket
import urllib.request
from functools import partial
from pathlib import Path

import harness
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.triton

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()
MIB = 1 << 20


def samples(up, name):
    """The values of one metric by their source."""
    return {
        sample.labels.get("source", ""): sample.value
        for family in text_string_to_metric_families(up.metrics())
        for sample in family.samples
        if sample.name == name
    }


def call(up, times):
    for _ in range(times):
        url = f"http://{up.http}/v2/models/digits/infer"
        with urllib.request.urlopen(urllib.request.Request(url, SEVEN)) as answer:
            assert answer.status == 200


def test_the_parent_of_workers_has_one_thread_and_no_socket(gateway):
    folder = Path(f"/proc/{gateway.children()['workers']}")
    assert len(list((folder / "task").iterdir())) == 1
    assert not [one for one in (folder / "fd").iterdir() if "socket" in str(one.readlink())]


def test_every_process_says_what_it_uses_and_workers_share_most_of_their_memory(gateway):
    call(gateway, 100)
    sizes = samples(gateway, "servegate_process_proportional_bytes")
    cpu = samples(gateway, "servegate_process_cpu_seconds_total")
    started = samples(gateway, "servegate_process_start_time_seconds")
    names = {"supervisor", "control", "workers", "worker-0", "worker-1"}
    assert set(sizes) == set(cpu) == set(started) == names
    whole = sum(size for name, size in sizes.items() if name.startswith("worker"))
    assert whole < (60 + 15) * MIB
    assert all(seconds >= 0 for seconds in cpu.values())
    assert started["supervisor"] <= started["workers"] <= started["worker-0"]


def test_a_worker_holds_no_database_no_onnx_no_tensorflow_and_no_templates(gateway):
    loaded = set()
    for number in range(2):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(gateway.state / f"worker-{number}.sock"))
            connection.sendall(b"GET /modules HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(partial(connection.recv, 65536), b""))
        names = answer.partition(b"\r\n\r\n")[2].decode().split()
        assert "serve.proxy.gateway" in names
        loaded |= {name.partition(".")[0] for name in names}
    forbidden = {"sqlalchemy", "alembic", "onnx", "onnxruntime", "tensorflow", "jinja2", "grpc"}
    forbidden |= {"aiohttp", "numpy", "tritonclient"}
    assert not loaded & forbidden
