"""TensorFlow Serving's paths and errors."""

import pytest
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


LABELLED, LAST = Servable("m", None, "v.1-a"), Servable("m", (1 << 63) - 1)


def test_a_path_asks_for_this() -> None:
    for method, path, wanted in (
        ("POST", b"/v1/models/m:predict", TfServingQuestion(TfServingTask.PREDICT, M)),
        ("POST", b"/v1/models/m:classify", TfServingQuestion(TfServingTask.CLASSIFY, M)),
        (
            "POST",
            b"/v1/models/m/versions/7:regress",
            TfServingQuestion(TfServingTask.REGRESS, Servable("m", 7)),
        ),
        (
            "POST",
            b"/v1/models/m/labels/v.1-a:predict",
            TfServingQuestion(TfServingTask.PREDICT, LABELLED),
        ),
        ("GET", b"/v1/models/m", TfServingQuestion(TfServingTask.STATUS, M)),
        (
            "GET",
            b"/v1/models/m/versions/007",
            TfServingQuestion(TfServingTask.STATUS, Servable("m", 7)),
        ),
        ("GET", b"/v1/models/m/metadata", TfServingQuestion(TfServingTask.METADATA, M)),
        (
            "GET",
            b"/v1/models/m/labels/v.1-a/metadata",
            TfServingQuestion(TfServingTask.METADATA, LABELLED),
        ),
        (
            "GET",
            b"/v1/models/m/versions/9223372036854775807",
            TfServingQuestion(TfServingTask.STATUS, LAST),
        ),
    ):
        assert parse(method, path) == wanted, (method, path)


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
        assert f"Malformed request: {method} /v1/models" in str(
            refusal(BadRequest, parse, method, path)
        ), (method, path)


def test_a_version_that_no_one_counts_to_is_no_number() -> None:
    for digits in ("9223372036854775808", "18446744073709551615", "1" * 400):
        assert "Failed to convert version" in str(
            refusal(BadRequest, parse, "GET", f"/v1/models/m/versions/{digits}".encode())
        ), digits


def test_an_error_has_this_status_code_and_sentence() -> None:
    for error, servable, wanted in (
        (UnknownModel("m"), M, (404, 5, "Servable not found for request: Latest(m)")),
        (
            UnknownVersion("m", "9"),
            Servable("m", 9),
            (404, 5, "Servable not found for request: Specific(m, 9)"),
        ),
        (
            UnknownModel("m"),
            Servable("m", None, "x"),
            (400, 3, "Unrecognized servable version label: x"),
        ),
        (
            UnknownLabel("m", "x", ["secret"]),
            Servable("m", None, "x"),
            (400, 3, "Unrecognized servable version label: x"),
        ),
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


def test_a_model_that_is_not_there_and_one_without_versions_are_told_alike() -> None:
    sentences = set()
    for seen in (None, view()):
        with pytest.raises(NotFound) as error:
            statuses(M, seen)
        sentences.add(str(error.value))
    assert sentences == {"Could not find any versions of model m"}


def test_the_newest_version_comes_first() -> None:
    found = statuses(M, view(target(1), target(12), target(3)))
    assert [one["version"] for one in found] == ["12", "3", "1"]
