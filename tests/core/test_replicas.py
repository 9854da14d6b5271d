"""Replicas: the four-part address of a Triton, and what `--discover` may say."""

import pytest
from refusals import refusal

from serve.core.discovery import ByKubernetes, ByName, places_of
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


def test_a_namespace_is_found_here_or_behind_a_url() -> None:
    for text, place in (
        ("kubernetes", ByKubernetes()),
        ("kubernetes=models", ByKubernetes("models")),
        (
            "kubernetes=http://127.0.0.1:8001/models",
            ByKubernetes("models", "http://127.0.0.1:8001"),
        ),
        ("kubernetes=https://api/c/1/models", ByKubernetes("models", "https://api/c/1")),
        ("kubernetes=http://[::1]:1/models", ByKubernetes("models", "http://[::1]:1")),
    ):
        assert dict(places_of([text])) == {text: place}, text


def test_a_name_has_ports_and_a_pool() -> None:
    for rest, host, pool in (
        ("tritons:1:2:3", "tritons", "default"),
        ("tritons.models.svc:1:2:3@a100", "tritons.models.svc", "a100"),
        ("[::1]:1:2:3", "::1", "default"),
    ):
        (place,) = places_of([f"dns={rest}"]).values()
        assert place == ByName(Replica(f"dns={rest}", host, 1, 2, 3, pool)), (rest, host)


def test_several_places_keep_their_order() -> None:
    texts = ["dns=b:1:2:3", "kubernetes", "dns=a:1:2:3"]
    assert list(places_of(texts)) == texts


def test_what_is_no_place_is_refused_with_what_would_be_one() -> None:
    for text in (
        *("", "consul", "kubernetes=", "kubernetes=/models", "kubernetes=Models"),
        *("kubernetes=-a", "kubernetes=" + "a" * 64, "kubernetes=http://127.0.0.1:8001"),
        *("kubernetes=http://127.0.0.1:8001/", "kubernetes=ftp://127.0.0.1/models"),
        *("kubernetes=http://user:word@127.0.0.1/models", "kubernetes=http://a?b=c/models"),
        *("kubernetes=http://a:port/models", "kubernetes=http:///models", "dns", "dns="),
        *("dns=tritons", "dns=tritons:1:2", "dns=tritons:1:2:0"),
        *("dns=:1:2:3", "dns=tritons:1:2:3@"),
    ):
        error = refusal(Invalid, places_of, [text])
        assert f"'{text}'" in error.what, text
        assert "--discover" in error.try_this, text


def test_a_place_that_is_named_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="twice"):
        places_of(["kubernetes", "kubernetes"])
