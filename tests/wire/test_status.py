"""Status codes: the numbers of every error, the shapes of errors, and what is a refusal."""

import inspect
import json

import grpc

from serve.core import errors
from serve.core.calls import PREDICTIONS, Reply, Verb
from serve.core.errors import ServegateError
from serve.core.snapshot import VersionTarget
from serve.wire import status

JSON = b"application/json"
# By status over HTTP and over gRPC. The gateway turns NotSent into another error.
EXPECTED: dict[tuple[int, str], str] = {
    (400, "INTERNAL"): "Unparsable",
    (400, "INVALID_ARGUMENT"): "BadRequest BadVersion LoadFailed",
    (401, "UNAUTHENTICATED"): "Unauthenticated",
    (403, "PERMISSION_DENIED"): "CodeNotAllowed Forbidden",
    (403, "UNIMPLEMENTED"): "NotServed",
    (404, "NOT_FOUND"): (
        "NotFound NoMirror UnknownModel UnknownVersion UnknownKey UnknownUpload UnknownConversion "
        "UnknownRevision UnknownLabel"
    ),
    (404, "UNIMPLEMENTED"): "NotHere",
    (405, "UNIMPLEMENTED"): "MethodNotAllowed",
    (408, "DEADLINE_EXCEEDED"): "TooSlow",
    (409, "ABORTED"): "WrongOffset InUse Conflict VersionNotReady LaterChanges",
    (412, "FAILED_PRECONDITION"): "PreconditionFailed",
    (413, "RESOURCE_EXHAUSTED"): "BodyTooLarge ConversionTooLarge TooMuchJson InflatedTooLarge",
    (417, "INVALID_ARGUMENT"): "ExpectationFailed",
    (422, "INVALID_ARGUMENT"): "CheckFailed DigestMismatch TrialFailed Invalid",
    (429, "RESOURCE_EXHAUSTED"): "Overloaded NoRoom TooManyIncomplete",
    (431, "RESOURCE_EXHAUSTED"): "HeadTooLarge",
    (500, "INTERNAL"): (
        "ServegateError ConversionFailed GateRefused NotInRepository UnreadableConfiguration "
        "WrongJson NotSent CannotStart TritonMissing TritonDidNotStart TritonFailed"
    ),
    (501, "UNIMPLEMENTED"): "FixedSetting",
    (502, "UNAVAILABLE"): "OutcomeUnknown",
    (503, "UNAVAILABLE"): (
        "ModelControlOff Unavailable NoSnapshot NoReplica Asleep NotLoaded NoControl"
    ),
    (504, "DEADLINE_EXCEEDED"): "DeadlineExceeded",
    (507, "RESOURCE_EXHAUSTED"): "NoSpace",
}


def test_every_error_has_its_status_in_both_protocols() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    named = {kind.__name__: kind for kind in kinds if issubclass(kind, ServegateError)}
    assert sorted(named) == sorted(name for names in EXPECTED.values() for name in names.split())
    for (http, grpc_name), names in EXPECTED.items():
        for name in names.split():
            error = named[name].__new__(named[name])
            assert status.http_status(error) == http, name
            assert status.grpc_code(error) == grpc.StatusCode[grpc_name].value[0], name


def test_metrics_call_a_grpc_status_by_its_name_and_any_other_by_its_number() -> None:
    for code in grpc.StatusCode:
        assert status.code_name("grpc", code.value[0]) == code.name, code
    assert [status.code_name("grpc", number) for number in (17, 999, -1)] == ["17", "999", "-1"]
    for number in (100, 200, 404, 599, 600, 999, 0, -1):
        assert status.code_name("http", number) == str(number), number


def test_an_http_error_is_a_json_object_with_the_key_that_clients_read() -> None:
    reply = status.http_error(errors.UnknownVersion("größe", "9"))
    assert json.loads(reply.body) == {
        "error": "Request for unknown model: 'größe' version 9 is not found"
    }
    assert dict(reply.headers) == {
        b"content-type": b"text/plain",
        b"servegate-error": b"unknown_version",
    }


def test_what_is_found_early_is_plain_text_to_infer_and_ready_and_json_to_the_others() -> None:
    for verb in Verb:
        early = b"text/plain" if verb in (Verb.INFER, Verb.READY) else JSON
        for error, media in (
            (errors.UnknownVersion("x", "9"), early),
            (errors.BadVersion("9" * 20), early),
            (errors.MethodNotAllowed("x"), early),
            (errors.NotHere("x"), b"text/plain"),
            (errors.NoRoom(5), JSON),
        ):
            headers = dict(status.http_error(error, verb).headers)
            assert headers[b"content-type"] == media, (verb, error)


def test_whoever_shows_no_key_is_told_how_to_show_one() -> None:
    headers = dict(status.http_error(errors.Unauthenticated()).headers)
    assert headers[b"www-authenticate"] == b'Bearer realm="servegate"'


def test_statistics_of_what_does_not_exist_are_a_wrong_argument() -> None:
    unavailable = "requested model version is not available for model 'm'"
    for error, said in (
        (errors.UnknownModel("m"), "requested model 'm' is not available"),
        (errors.UnknownVersion("m", "9"), unavailable),
    ):
        over_http, over_grpc = (status.no_statistics(one, error) for one in ("http", "grpc"))
        assert over_http is not None and over_grpc is not None, error
        assert (over_http.status, json.loads(over_http.body)) == (400, {"error": said}), error
        assert (over_grpc.status, over_grpc.message) == (status.INVALID_ARGUMENT, said), error
    assert status.no_statistics("http", errors.NoReplica("m", "1")) is None


def test_only_what_passes_by_itself_says_when_to_try_again() -> None:
    asleep = errors.Asleep("m")
    assert asleep.retry_after > 1
    for error, after in (
        (errors.Overloaded("m", 5), b"1"),
        (errors.NoRoom(5), b"1"),
        (errors.NoReplica("m", "1"), b"1"),
        (errors.NotLoaded("m", "1"), b"1"),
        (errors.NoSnapshot(), b"1"),
        (asleep, b"%d" % asleep.retry_after),
        (errors.OutcomeUnknown("x"), None),
        (errors.BodyTooLarge(5), None),
        (errors.TooSlow("x", 5), None),
    ):
        assert dict(status.http_error(error).headers).get(b"retry-after") == after, error


def test_every_limit_has_a_code_that_scripts_can_look_for() -> None:
    for error, code in (
        (errors.BodyTooLarge(5), b"body_too_large"),
        (errors.InflatedTooLarge(5), b"inflated_too_large"),
        (errors.HeadTooLarge(5), b"head_too_large"),
        (errors.TooSlow("x", 5), b"too_slow"),
        (errors.NoRoom(5), b"no_room"),
    ):
        assert dict(status.http_error(error).headers)[b"servegate-error"] == code, error
        assert status.grpc_error(error).headers == ((b"servegate-error", code),), error


def test_a_grpc_error_is_a_status_with_message_and_code_in_its_trailers() -> None:
    reply = status.grpc_error(errors.Overloaded("m", 5))
    assert reply.status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert "limit of 5 calls" in reply.message
    assert reply.headers == ((b"servegate-error", b"overloaded"),)


def http(number: int, error: str) -> Reply:
    return Reply(number, json.dumps({"error": error}).encode())


def rpc(code: str, message: str) -> Reply:
    return Reply(grpc.StatusCode[code].value[0], b"", (), message)


UNKNOWN = "Request for unknown model: 'm' version 2 is not found"
NOT_READY = "Request for unknown model: 'm' version 2 is not at ready state"
FULL = "Exceeds maximum queue size"
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
PLAIN = VersionTarget("ours", 1, "m", 2, "onnxruntime", ("a",))
COMPOSED = VersionTarget("ours", 1, "m", 2, "ensemble", ("a",), calls_others=True)


def refusal_in(reply: Reply, of: VersionTarget = PLAIN) -> status.Refusal | None:
    """What the answer to a predict call proves; numbers above 99 are those of HTTP."""
    protocol = "http" if reply.status > 99 else "grpc"
    return status.refusal(protocol, Verb.INFER, reply, of)


def test_a_refusal_of_triton_proves_that_nothing_was_executed() -> None:
    for reply, lacks_version in (
        (http(404, UNKNOWN), True),
        (http(404, "Request for unknown model: 'm' is not found"), True),
        (http(404, "Request for unknown model: 'm' has no available versions"), True),
        (http(503, NOT_READY), True),
        (http(503, FULL), False),
        (http(503, f"[request id: 1] {FULL}"), False),
        (http(503, f"[request id: <id_unknown>] {STOPPING}"), False),
        (http(503, "Server is stopping to serve requests."), False),
        (http(503, "Server not ready"), False),
        (rpc("NOT_FOUND", UNKNOWN), True),
        (rpc("UNAVAILABLE", NOT_READY), True),
        (rpc("UNAVAILABLE", f"[request id: 1] {FULL}"), False),
        (rpc("UNAVAILABLE", "Server not ready"), False),
    ):
        refusal = refusal_in(reply)
        assert refusal is not None, reply
        assert refusal.lacks_version is lacks_version, reply


def test_any_other_answer_is_the_answer() -> None:
    for reply in (
        *(Reply(503, b""), Reply(503, b"[]"), http(502, ""), http(504, "")),
        *(http(200, UNKNOWN), http(400, UNKNOWN), http(429, FULL), http(500, FULL)),
        http(503, "a model's own code answers UNAVAILABLE after it has run"),
        http(503, NOT_READY.replace("2", "22")),
        http(503, f"the second step says: {FULL}"),
        http(503, f"in ensemble 'm', [request id: 1] {FULL}"),
        http(503, f"{FULL}, says the second step"),
        http(503, "Server is stopping"),
        http(404, "Request for unknown model: 'a part of m' is not found"),
        http(404, f"while asking a part: {UNKNOWN}"),
        http(404, f"{UNKNOWN}, says another server"),
        http(404, UNKNOWN.replace("2", "3")),
        http(404, "Not Found"),
        rpc("NOT_FOUND", UNKNOWN.replace("'m'", "'n'")),
        rpc("NOT_FOUND", "file not found"),
        rpc("UNAVAILABLE", "Socket closed"),
        rpc("UNAVAILABLE", "Stream removed (Socket closed)"),
        rpc("UNAVAILABLE", "Cancelling all calls"),
        *(rpc("OK", ""), rpc("INTERNAL", UNKNOWN), rpc("RESOURCE_EXHAUSTED", FULL)),
    ):
        assert refusal_in(reply) is None, reply


def test_a_model_that_calls_others_may_pass_on_what_another_was_refused_with() -> None:
    for said in (FULL, f"[request id: 1] {FULL}", NOT_READY, "Server not ready"):
        for reply in (http(503, said), rpc("UNAVAILABLE", said)):
            assert refusal_in(reply, COMPOSED) is None, reply
    lacking = refusal_in(http(404, UNKNOWN), COMPOSED)
    assert lacking is not None and lacking.lacks_version, "the replica has not executed it"


def test_a_busy_server_refuses_predict_calls_and_a_lacking_one_questions_too() -> None:
    for verb in Verb:
        busy = status.refusal("http", verb, http(503, FULL), PLAIN)
        assert (busy is not None) is (verb in PREDICTIONS), verb
        absent = status.refusal("http", verb, http(404, UNKNOWN), PLAIN)
        may_be_told = PREDICTIONS | {Verb.STREAM, Verb.METADATA, Verb.CONFIG}
        assert (absent is not None) is (verb in may_be_told), verb


def test_words_of_a_caller_that_are_no_text_are_told_as_far_as_they_are() -> None:
    """JSON can name half a character, which UTF-8 cannot say."""
    assert status.http_error(errors.BadRequest("'\ud800é'")).body == '{"error":"\'?é\'"}'.encode()
