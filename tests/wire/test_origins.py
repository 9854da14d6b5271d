"""Where a request comes from: what browsers state, and under which names a port is called."""

import pytest

from serve.core.errors import BadRequest, Forbidden
from serve.wire.origins import check_local, host_of, is_cross_site

HOST = (b"host", b"localhost:8000")


@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [
        ([], False),
        ([HOST], False),
        ([HOST, (b"origin", b"http://localhost:8000")], False),
        ([HOST, (b"origin", b"http://evil")], True),
        ([HOST, (b"origin", b"http://localhost:8080")], True),
        ([HOST, (b"origin", b"null")], True),
        ([HOST, (b"origin", b"")], True),
        ([HOST, (b"origin", b"http://[")], True),
        ([HOST, (b"origin", b"http://localhost:8000"), (b"origin", b"http://evil")], True),
        ([(b"host", b""), (b"origin", b"null")], True),
        ([(b"origin", b"http://localhost:8000")], True),
        ([HOST, (b"sec-fetch-site", b"same-origin")], False),
        ([HOST, (b"sec-fetch-site", b"none")], False),
        ([HOST, (b"sec-fetch-site", b"cross-site")], True),
        ([HOST, (b"sec-fetch-site", b"same-site")], True),
        ([HOST, (b"sec-fetch-site", b"none"), (b"sec-fetch-site", b"cross-site")], True),
        ([HOST, (b"sec-fetch-site", b"same-origin"), (b"origin", b"http://evil")], False),
    ],
)
def test_browsers_say_whether_a_page_of_another_site_asks(
    headers: list[tuple[bytes, bytes]], is_foreign: bool
) -> None:
    assert is_cross_site(headers) == is_foreign


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"localhost:8000", "localhost"),
        (b"127.0.0.1", "127.0.0.1"),
        (b"[::1]:8000", "[::1]"),
        (b"models.example.com:", "models.example.com"),
        (b" a_b ", "a_b"),
        (b"", ""),
    ],
)
def test_a_host_is_a_name_and_perhaps_a_port(host: bytes, name: str) -> None:
    assert host_of([(b"accept", b"*/*"), (b"host", host)], "1.1") == name


@pytest.mark.parametrize("hosts", [[], [b"a", b"a"], [b"a b"], [b"a/b"], [b"u@a"], [b"a:b"]])
def test_a_request_has_exactly_one_host(hosts: list[bytes]) -> None:
    with pytest.raises(BadRequest):
        host_of([(b"host", one) for one in hosts], "1.1")


def test_http_1_0_needs_no_host() -> None:
    assert host_of([], "1.0") == ""
    with pytest.raises(BadRequest):
        host_of([(b"host", b"a"), (b"host", b"b")], "1.0")


@pytest.mark.parametrize(
    "name",
    ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "10.1.2.3", "[::1]", "triton", ""],
)
def test_what_nobody_can_register_is_a_name_of_this_machine(name: str) -> None:
    check_local(name)


@pytest.mark.parametrize(
    "name",
    ["evil.com", "127.0.0.1.evil.com", "localhost.evil.com", "evil.com.", "127.0.0.1.", "a.b"],
)
def test_a_name_that_can_be_registered_is_foreign(name: str) -> None:
    with pytest.raises(Forbidden, match="does not belong to this machine"):
        check_local(name)
