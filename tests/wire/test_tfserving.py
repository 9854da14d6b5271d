"""TensorFlow Serving's paths and errors."""

from builders import target, view
from refusals import refusal

from serve.core.calls import Reply
from serve.core.errors import (
    BadRequest,
    DeadlineExceeded,
    NoReplica,
    NotFound,
    Overloaded,
    UnknownLabel,
    UnknownModel,
    UnknownVersion,
)
from serve.wire.tfserving_rest import (
    Servable,
    TfServingQuestion,
    TfServingTask,
    TritonRefused,
    UnknownSignature,
    error_reply,
    parse,
    statuses,
    told,
)

M = Servable("m")


def test_a_path_asks_for_this() -> None:
    labelled, last = Servable("m", None, "v.1-a"), Servable("m", (1 << 63) - 1)
    for method, end, task, servable in (
        ("POST", b":predict", TfServingTask.PREDICT, M),
        ("POST", b":classify", TfServingTask.CLASSIFY, M),
        ("POST", b"/versions/7:regress", TfServingTask.REGRESS, Servable("m", 7)),
        ("POST", b"/labels/v.1-a:predict", TfServingTask.PREDICT, labelled),
        ("GET", b"", TfServingTask.STATUS, M),
        ("GET", b"/versions/007", TfServingTask.STATUS, Servable("m", 7)),
        ("GET", b"/metadata", TfServingTask.METADATA, M),
        ("GET", b"/labels/v.1-a/metadata", TfServingTask.METADATA, labelled),
        ("GET", b"/versions/9223372036854775807", TfServingTask.STATUS, last),
    ):
        assert parse(method, b"/v1/models/m" + end) == TfServingQuestion(task, servable), end


def test_any_other_path_is_malformed() -> None:
    for method, path in (
        ("GET", b"/v1/models/m:predict"),
        ("POST", b"/v1/models/m"),
        ("POST", b"/v1/models/m/metadata"),
        ("PUT", b"/v1/models/m:predict"),
        ("HEAD", b"/v1/models/m"),
        ("POST", b"/v1/models/:predict"),
        ("POST", b"/v1/models/m/n:predict"),
        ("POST", b"/v1/models/m/label/x:predict"),
        ("POST", b"/v1/models/m/versions/-1:predict"),
        ("POST", b"/v1/models/m/versions/1/labels/x:predict"),
        ("POST", b"/v1/models/m%2Fn:predict"),
        ("GET", b"/v1/models/m/"),
        ("GET", b"/v1/models/"),
    ):
        error = refusal(BadRequest, parse, method, path)
        assert f"Malformed request: {method} /v1/models" in str(error), (method, path)
    for digits in ("9223372036854775808", "18446744073709551615", "1" * 400):
        error = refusal(BadRequest, parse, "GET", f"/v1/models/m/versions/{digits}".encode())
        assert "Failed to convert version" in str(error), digits


def test_an_error_has_this_status_code_and_sentence() -> None:
    nine, labelled = Servable("m", 9), Servable("m", None, "x")
    not_found = "Servable not found for request: "
    unlabelled = "Unrecognized servable version label: x"
    for error, servable, wanted in (
        (UnknownModel("m"), M, (404, 5, not_found + "Latest(m)")),
        (UnknownVersion("m", "9"), nine, (404, 5, not_found + "Specific(m, 9)")),
        (UnknownModel("m"), labelled, (400, 3, unlabelled)),
        (UnknownLabel("m", "x", ["secret"]), labelled, (400, 3, unlabelled)),
        (UnknownSignature("none"), M, (400, 9, "none")),
        (BadRequest("no"), None, (400, 3, "no")),
        (NoReplica("m", "1"), M, (503, 14, "no replica is ready for model 'm' version 1")),
        (DeadlineExceeded(), M, (504, 4, "the call's deadline has passed")),
        (TritonRefused(Reply(400, b'{"error":"bad shape"}')), M, (400, 3, "bad shape")),
        (TritonRefused(Reply(501, b'{"error":"decoupled"}')), M, (501, 12, "decoupled")),
        (TritonRefused(Reply(599, b"gone")), M, (599, 2, "gone")),
    ):
        assert told(error, servable) == wanted, (error, servable)


def test_an_error_of_ours_says_so_and_one_of_tritons_does_not() -> None:
    ours = dict(error_reply(Overloaded("m", 3), M).headers)
    assert ours[b"servegate-error"] == b"overloaded" and ours[b"retry-after"] == b"1"
    tritons = error_reply(TritonRefused(Reply(400, b'{"error":"bad \xc3\xa9"}')), M)
    assert tritons.headers == ((b"content-type", b"application/json"),)
    assert tritons.body == '{"error": "bad é"}'.encode()


def test_the_newest_version_comes_first_and_a_model_without_versions_is_not_found() -> None:
    found = statuses(M, view(target(1), target(12), target(3)))
    assert [one["version"] for one in found] == ["12", "3", "1"]
    for seen in (None, view()):
        error = refusal(NotFound, statuses, M, seen)
        assert str(error) == "Could not find any versions of model m"
