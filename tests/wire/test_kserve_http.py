"""KServe v2 over HTTP: paths as Triton reads them, and heads."""

from refusals import refusal

from serve.core.calls import Headers, Verb
from serve.core.errors import MethodNotAllowed, NotHere, NotServed
from serve.wire.kserve_http import (
    HealthProbe,
    KServeQuestion,
    end_to_end,
    parse,
    upstream_path,
)


def test_every_path_of_triton_that_the_gateway_serves() -> None:
    for method, path, asked in (
        ("GET", b"/v2", KServeQuestion(Verb.SERVER_METADATA)),
        ("GET", b"/v2/", KServeQuestion(Verb.SERVER_METADATA)),
        ("GET", b"/v2/health/live", HealthProbe.LIVE),
        ("GET", b"/v2/health/ready", HealthProbe.READY),
        ("GET", b"/v2/models/m", KServeQuestion(Verb.METADATA, "m")),
        ("GET", b"/v2/models/m/ready", KServeQuestion(Verb.READY, "m")),
        ("GET", b"/v2/models/m/config", KServeQuestion(Verb.CONFIG, "m")),
        ("GET", b"/v2/models/m/stats", KServeQuestion(Verb.STATS, "m")),
        ("POST", b"/v2/models/m/infer", KServeQuestion(Verb.INFER, "m")),
        ("GET", b"/v2/models/m/versions/2", KServeQuestion(Verb.METADATA, "m", "2")),
        ("GET", b"/v2/models/m/versions/2/ready", KServeQuestion(Verb.READY, "m", "2")),
        ("GET", b"/v2/models/m/versions/2/config", KServeQuestion(Verb.CONFIG, "m", "2")),
        ("GET", b"/v2/models/m/versions/2/stats", KServeQuestion(Verb.STATS, "m", "2")),
        ("POST", b"/v2/models/m/versions/2/infer", KServeQuestion(Verb.INFER, "m", "2")),
        ("POST", b"/v2/models/m/generate", KServeQuestion(Verb.GENERATE, "m")),
        ("POST", b"/v2/models/m/generate_stream", KServeQuestion(Verb.GENERATE_STREAM, "m")),
        ("POST", b"/v2/models/m/versions/2/generate", KServeQuestion(Verb.GENERATE, "m", "2")),
        ("GET", b"/v2/models/stats", KServeQuestion(Verb.STATS)),
        ("GET", b"/v2/models/stats/stats", KServeQuestion(Verb.STATS, "stats")),
        ("POST", b"/v2/repository/index", KServeQuestion(Verb.INDEX)),
        ("POST", b"/v2/repository/r/index", KServeQuestion(Verb.INDEX)),
    ):
        assert parse(method, path) == asked, (method, path)


def test_a_version_that_is_no_number_is_a_label() -> None:
    assert parse("POST", b"/v2/models/m/versions/stable/infer").selector == "stable"  # type: ignore[union-attr]


def test_a_leading_zero_is_left_in_place() -> None:
    assert parse("GET", b"/v2/models/m/versions/01") == KServeQuestion(Verb.METADATA, "m", "01")


def test_nothing_is_percent_decoded() -> None:
    for path, model in (
        (b"/v2/models/sim%70le", "sim%70le"),
        (b"/v2/models/a%2Fb", "a%2Fb"),
        (b"/v2/models/%2e%2e", "%2e%2e"),
        (b"/v2/models/ready", "ready"),
        (b"/v2/models/a.b-c_d", "a.b-c_d"),
    ):
        assert parse("GET", path) == KServeQuestion(Verb.METADATA, model), path


NOT_HERE = [
    b"",
    b"/",
    b"/v1",
    b"/V2",
    b"/v2/x",
    b"/v2/health",
    b"/v2/health/",
    b"/v2/health/live/",
    b"/v2/health/ready/",
    b"//v2/health/live",
    b"//v2/models/m",
    b"/v2//models/m",
    b"/v2/models",
    b"/v2/models/",
    b"/v2/models//infer",
    b"/v2/models/m/",
    b"/v2/models/m/infer/",
    b"/v2/models/m/Infer",
    b"/v2/models/m/nothing",
    b"/v2/models/m/generate_",
    b"/v2/models/m/versions/1.5",
    b"/v2/models/m/versions/-1",
    b"/v2/models/m/versions/1abc",
    b"/v2/models/m/versions/%31",
    b"/v2/models/m/versions",
    b"/v2/models/m/versions/",
    b"/v2/models/m/versions/1/",
    b"/v2/models/m/versions//infer",
    b"/v2/models/m/versions/1/infer/",
    b"/v2/models/m/versions/1/versions/2",
    b"/v2/models/m/versions/1/trace/setting",
    b"/v2/repository",
    b"/v2/repositoryx",
    b"/v2/repository/index/",
    b"/v2/repository/a/b/index",
    b"/v2/repository/models/m",
    b"/v2/repository/models/m/load/",
    b"/v2/systemsharedmemory",
    b"/v2/systemsharedmemory/region/r",
    b"/v2/systemsharedmemory/nothing",
    b"/v2/logging/",
    b"/metrics",
    b"/prefix/v2/models/m",
]


def test_every_other_path_is_not_here() -> None:
    for method in ("GET", "POST"):
        for path in NOT_HERE:
            refusal(NotHere, parse, method, path)


def test_a_known_path_with_another_method_is_not_allowed() -> None:
    for method, path in (
        ("POST", b"/v2"),
        ("POST", b"/v2/health/live"),
        ("POST", b"/v2/health/ready"),
        ("HEAD", b"/v2/health/ready"),
        ("HEAD", b"/v2/models/m"),
        ("HEAD", b"/v2/models/m/ready"),
        ("OPTIONS", b"/v2/models/m/infer"),
        ("GET", b"/v2/models/m/infer"),
        ("PUT", b"/v2/models/m/infer"),
        ("POST", b"/v2/models/m"),
        ("POST", b"/v2/models/m/ready"),
        ("POST", b"/v2/models/m/versions/1/config"),
        ("DELETE", b"/v2/models/m/stats"),
        ("GET", b"/v2/models/m/generate"),
        ("GET", b"/v2/models/m/generate_stream"),
        ("POST", b"/v2/models/stats"),
        ("GET", b"/v2/repository/index"),
        ("GET", b"/v2/repository/r/index"),
        ("GET", b"/v2/repository/models/m/load"),
        ("PUT", b"/v2/logging"),
        ("DELETE", b"/v2/models/m/trace/setting"),
        ("POST", b"/v2/systemsharedmemory/status"),
        ("GET", b"/v2/cudasharedmemory/region/r/register"),
        ("get", b"/v2"),
    ):
        refusal(MethodNotAllowed, parse, method, path)


def test_what_would_change_one_replica_out_of_many_is_refused_with_what_to_use_instead() -> None:
    for method, path, instead in (
        ("POST", b"/v2/repository/models/m/load", "servegate model ls"),
        ("POST", b"/v2/repository/r/models/m/load", "servegate model ls"),
        ("POST", b"/v2/repository/models/m/unload", "servegate route set"),
        ("GET", b"/v2/systemsharedmemory/status", "servegate infer"),
        ("GET", b"/v2/systemsharedmemory/region/r/status", "servegate infer"),
        ("POST", b"/v2/systemsharedmemory/region/r/register", "servegate infer"),
        ("POST", b"/v2/cudasharedmemory/unregister", "servegate infer"),
        ("GET", b"/v2/trace/setting", "servegate up --triton-arg"),
        ("POST", b"/v2/models/m/trace/setting", "servegate up --triton-arg"),
        ("GET", b"/v2/logging", "servegate up --triton-arg"),
    ):
        error = refusal(NotServed, parse, method, path)
        assert instead in error.try_this, (method, path)
        assert "--allow-management" in error.try_this, (method, path)


def test_the_path_on_triton_names_the_version_where_it_is_pinned() -> None:
    for verb, version, path in (
        (Verb.INFER, 2, "/v2/models/m/versions/2/infer"),
        (Verb.INFER, None, "/v2/models/m/infer"),
        (Verb.READY, 2, "/v2/models/m/versions/2/ready"),
        (Verb.METADATA, None, "/v2/models/m"),
        (Verb.METADATA, 2, "/v2/models/m/versions/2"),
        (Verb.CONFIG, None, "/v2/models/m/config"),
        (Verb.STATS, None, "/v2/models/m/stats"),
        (Verb.SERVER_METADATA, None, "/v2"),
    ):
        assert upstream_path(verb, "m", version) == path, (verb, version)


# --- heads ---------------------------------------------------------------------------------------

LENGTH = b"inference-header-content-length"


def test_headers_of_one_hop_stay_behind_and_all_others_pass_in_their_order() -> None:
    kept: Headers = ((b"x-b", b"1"), (b"content-type", b"a/b"), (b"x-b", b"2"), (LENGTH, b"7"))
    hop: Headers = (
        (b"connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authorization", b"Basic x"),
        (b"proxy-authenticate", b"Basic"),
        (b"proxy-connection", b"close"),
        (b"te", b"trailers"),
        (b"trailer", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"host", b"a"),
        (b"content-length", b"5"),
        (b"expect", b"100-continue"),
    )
    assert end_to_end((*kept[:2], *hop, *kept[2:])) == kept


def test_headers_that_connection_names_stay_behind_too() -> None:
    headers: Headers = (
        (b"x-secret", b"1"),
        (b"connection", b"close, X-Secret"),
        (b"connection", b" X-Other ,"),
        (b"x-other", b"2"),
        (b"x-kept", b"3"),
    )
    assert end_to_end(headers) == ((b"x-kept", b"3"),)
