"""Replicas: the four-part address of a Triton server."""

import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.core.replicas import Replica


def test_an_address_has_a_host_and_three_ports() -> None:
    replica = Replica.parse("10.0.0.7:8000:8001:8002", name="gpu-0", pool="a100")
    assert replica == Replica("gpu-0", "10.0.0.7", 8000, 8001, 8002, "a100")
    assert replica.http_url == "http://10.0.0.7:8000"
    assert replica.grpc_target == "10.0.0.7:8001"
    assert replica.metrics_url == "http://10.0.0.7:8002/metrics"


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("triton.svc:1:2:3", "127.0.0.1:8000:8001:8002", "[::1]:1:2:65535"):
        assert str(Replica.parse(text, name="a")) == text, text


def test_an_ipv6_host_stands_in_brackets_wherever_a_port_follows() -> None:
    replica = Replica.parse("[fd00::1]:1:2:3", name="a")
    assert replica.host == "fd00::1"
    assert replica.http_url == "http://[fd00::1]:1"
    assert replica.grpc_target == "[fd00::1]:2"


def test_anything_else_is_no_address() -> None:
    for text in (
        *("", "host", "host:8000", "host:8000:8001", ":1:2:3", "host:0:1:2", "host:1:2:65536"),
        *("host:a:b:c", "host:1:2:", "host:1:-2:3", "host:1: 2:3", "host:٣:2:3", "[]:1:2:3"),
    ):
        refusal(Invalid, Replica.parse, text, name="a")


def test_a_name_and_a_pool_may_stand_around_the_address() -> None:
    assert Replica.named("gpu-1=[fd00::1]:1:2:3@a100") == Replica(
        "gpu-1", "fd00::1", 1, 2, 3, "a100"
    )
    assert Replica.named("h:1:2:3", default="triton-0") == Replica("triton-0", "h", 1, 2, 3)


def test_one_without_a_name_is_refused_where_it_needs_one() -> None:
    with pytest.raises(Invalid, match="has no name"):
        Replica.named("h:1:2:3@a100")
