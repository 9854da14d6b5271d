"""Where a request comes from: what browsers state, and under which names a port is called."""

from refusals import refusal

from serve.core.errors import BadRequest, Forbidden
from serve.wire.origins import check_local, host_of, is_cross_site

HOST = (b"host", b"localhost:8000")


def test_browsers_say_whether_a_page_of_another_site_asks() -> None:
    for headers, is_foreign in (
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
    ):
        assert is_cross_site(headers) == is_foreign, headers


def test_a_host_is_a_name_and_perhaps_a_port() -> None:
    for host, name in (
        (b"localhost:8000", "localhost"),
        (b"127.0.0.1", "127.0.0.1"),
        (b"[::1]:8000", "[::1]"),
        (b"models.example.com:", "models.example.com"),
        (b" a_b ", "a_b"),
        (b"", ""),
    ):
        assert host_of([(b"accept", b"*/*"), (b"host", host)], "1.1") == name, host


def test_a_request_has_exactly_one_host() -> None:
    for hosts in ([], [b"a", b"a"], [b"a b"], [b"a/b"], [b"u@a"], [b"a:b"]):
        refusal(BadRequest, host_of, [(b"host", one) for one in hosts], "1.1")
    assert host_of([], "1.0") == "", "HTTP 1.0 needs none"
    refusal(BadRequest, host_of, [(b"host", b"a"), (b"host", b"b")], "1.0")


def test_a_name_that_can_be_registered_is_foreign_and_every_other_one_of_this_machine() -> None:
    for name in (
        *("evil.com", "127.0.0.1.evil.com", "localhost.evil.com", "evil.com."),
        *("127.0.0.1.", "a.b"),
    ):
        assert "is not a name of this machine" in str(refusal(Forbidden, check_local, name)), name
    for name in (
        *("localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "10.1.2.3", "[::1]"),
        *("triton", ""),
    ):
        check_local(name)
