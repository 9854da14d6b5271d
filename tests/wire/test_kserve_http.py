"""KServe v2 over HTTP: paths as Triton reads them."""

from refusals import refusal

from serve.core.calls import Verb
from serve.core.errors import MethodNotAllowed, NotHere, NotServed
from serve.wire.kserve_http import (
    HealthProbe,
    KServeQuestion,
    parse,
    upstream_path,
)


def test_every_path_of_triton_that_the_gateway_serves() -> None:
    for method, path, asked in (
        ("GET", b"/v2", KServeQuestion(Verb.SERVER_METADATA)),
        ("GET", b"/v2/", KServeQuestion(Verb.SERVER_METADATA)),
        ("GET", b"/v2/health/live", HealthProbe.LIVE),
        ("GET", b"/v2/health/ready", HealthProbe.READY),
        ("GET", b"/v2/models/stats", KServeQuestion(Verb.STATS)),
        ("GET", b"/v2/models/stats/stats", KServeQuestion(Verb.STATS, "stats")),
        ("POST", b"/v2/repository/index", KServeQuestion(Verb.INDEX)),
        ("POST", b"/v2/repository/r/index", KServeQuestion(Verb.INDEX)),
    ):
        assert parse(method, path) == asked, (method, path)


def test_a_path_of_a_model_may_name_a_version_or_a_label() -> None:
    for method, end, verb in (
        ("GET", b"", Verb.METADATA),
        ("GET", b"/ready", Verb.READY),
        ("GET", b"/config", Verb.CONFIG),
        ("GET", b"/stats", Verb.STATS),
        ("POST", b"/infer", Verb.INFER),
        ("POST", b"/generate", Verb.GENERATE),
        ("POST", b"/generate_stream", Verb.GENERATE_STREAM),
    ):
        assert parse(method, b"/v2/models/m" + end) == KServeQuestion(verb, "m"), end
        for selector in ("2", "01", "stable"):
            path = b"/v2/models/m/versions/" + selector.encode() + end
            assert parse(method, path) == KServeQuestion(verb, "m", selector), path


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
    *(b"", b"/", b"/v1", b"/V2", b"/v2/x", b"/metrics", b"/prefix/v2/models/m"),
    *(b"/v2/health", b"/v2/health/", b"/v2/health/live/", b"/v2/health/ready/"),
    *(b"//v2/health/live", b"//v2/models/m", b"/v2//models/m", b"/v2/models//infer"),
    *(b"/v2/models", b"/v2/models/", b"/v2/models/m/", b"/v2/models/m/infer/"),
    *(b"/v2/models/m/Infer", b"/v2/models/m/nothing", b"/v2/models/m/generate_"),
    *(b"/v2/models/m/versions/1.5", b"/v2/models/m/versions/-1", b"/v2/models/m/versions/1abc"),
    *(b"/v2/models/m/versions/%31", b"/v2/models/m/versions", b"/v2/models/m/versions/"),
    *(b"/v2/models/m/versions/1/", b"/v2/models/m/versions//infer"),
    *(b"/v2/models/m/versions/1/infer/", b"/v2/models/m/versions/1/versions/2"),
    *(b"/v2/models/m/versions/1/trace/setting", b"/v2/logging/"),
    *(b"/v2/repository", b"/v2/repositoryx", b"/v2/repository/index/"),
    *(b"/v2/repository/a/b/index", b"/v2/repository/models/m", b"/v2/repository/models/m/load/"),
    *(b"/v2/systemsharedmemory", b"/v2/systemsharedmemory/region/r"),
    b"/v2/systemsharedmemory/nothing",
]


def test_every_other_path_is_not_here() -> None:
    for method in ("GET", "POST"):
        for path in NOT_HERE:
            refusal(NotHere, parse, method, path)


def test_a_known_path_with_another_method_is_not_allowed() -> None:
    for path, methods in (
        (b"/v2", ("POST", "get")),
        (b"/v2/health/live", ("POST",)),
        (b"/v2/health/ready", ("POST", "HEAD")),
        (b"/v2/models/m", ("HEAD", "POST")),
        (b"/v2/models/m/ready", ("HEAD", "POST")),
        (b"/v2/models/m/infer", ("OPTIONS", "GET", "PUT")),
        (b"/v2/models/m/versions/1/config", ("POST",)),
        (b"/v2/models/m/stats", ("DELETE",)),
        (b"/v2/models/m/generate", ("GET",)),
        (b"/v2/models/m/generate_stream", ("GET",)),
        (b"/v2/models/stats", ("POST",)),
        (b"/v2/repository/index", ("GET",)),
        (b"/v2/repository/r/index", ("GET",)),
        (b"/v2/logging", ("PUT",)),
    ):
        for method in methods:
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
