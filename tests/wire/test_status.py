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
EXPECTED: dict[type[ServegateError], tuple[int, str]] = {
    errors.ServegateError: (500, "INTERNAL"),
    errors.BadRequest: (400, "INVALID_ARGUMENT"),
    errors.BadVersion: (400, "INVALID_ARGUMENT"),
    errors.Unparsable: (400, "INTERNAL"),
    errors.BodyTooLarge: (413, "RESOURCE_EXHAUSTED"),
    errors.ConversionTooLarge: (413, "RESOURCE_EXHAUSTED"),
    errors.TooMuchJson: (413, "RESOURCE_EXHAUSTED"),
    errors.InflatedTooLarge: (413, "RESOURCE_EXHAUSTED"),
    errors.HeadTooLarge: (431, "RESOURCE_EXHAUSTED"),
    errors.TooSlow: (408, "DEADLINE_EXCEEDED"),
    errors.ExpectationFailed: (417, "INVALID_ARGUMENT"),
    errors.NotFound: (404, "NOT_FOUND"),
    errors.UnknownModel: (404, "NOT_FOUND"),
    errors.UnknownVersion: (404, "NOT_FOUND"),
    errors.UnknownKey: (404, "NOT_FOUND"),
    errors.UnknownUpload: (404, "NOT_FOUND"),
    errors.UnknownConversion: (404, "NOT_FOUND"),
    errors.UnknownRevision: (404, "NOT_FOUND"),
    errors.WrongOffset: (409, "ABORTED"),
    errors.InUse: (409, "ABORTED"),
    errors.CheckFailed: (422, "INVALID_ARGUMENT"),
    errors.CodeNotAllowed: (403, "PERMISSION_DENIED"),
    errors.DigestMismatch: (422, "INVALID_ARGUMENT"),
    errors.NoSpace: (507, "RESOURCE_EXHAUSTED"),
    errors.ConversionFailed: (500, "INTERNAL"),
    errors.GateRefused: (500, "INTERNAL"),
    errors.TrialFailed: (422, "INVALID_ARGUMENT"),
    errors.UnknownLabel: (404, "NOT_FOUND"),
    errors.NotHere: (404, "UNIMPLEMENTED"),
    errors.MethodNotAllowed: (405, "UNIMPLEMENTED"),
    errors.NotServed: (403, "UNIMPLEMENTED"),
    errors.NotInRepository: (500, "INTERNAL"),
    errors.UnreadableConfiguration: (500, "INTERNAL"),
    errors.WrongJson: (500, "INTERNAL"),
    errors.FixedSetting: (501, "UNIMPLEMENTED"),
    errors.ModelControlOff: (503, "UNAVAILABLE"),
    errors.LoadFailed: (400, "INVALID_ARGUMENT"),
    errors.Unauthenticated: (401, "UNAUTHENTICATED"),
    errors.Forbidden: (403, "PERMISSION_DENIED"),
    errors.Conflict: (409, "ABORTED"),
    errors.PreconditionFailed: (412, "FAILED_PRECONDITION"),
    errors.VersionNotReady: (409, "ABORTED"),
    errors.LaterChanges: (409, "ABORTED"),
    errors.Invalid: (422, "INVALID_ARGUMENT"),
    errors.Unavailable: (503, "UNAVAILABLE"),
    errors.NoSnapshot: (503, "UNAVAILABLE"),
    errors.NoReplica: (503, "UNAVAILABLE"),
    errors.Asleep: (503, "UNAVAILABLE"),
    errors.NotLoaded: (503, "UNAVAILABLE"),
    errors.NoControl: (503, "UNAVAILABLE"),
    errors.Overloaded: (429, "RESOURCE_EXHAUSTED"),
    errors.NoRoom: (429, "RESOURCE_EXHAUSTED"),
    errors.TooManyIncomplete: (429, "RESOURCE_EXHAUSTED"),
    errors.DeadlineExceeded: (504, "DEADLINE_EXCEEDED"),
    errors.NotSent: (500, "INTERNAL"),  # the gateway turns it into another error
    errors.OutcomeUnknown: (502, "UNAVAILABLE"),
    errors.CannotStart: (500, "INTERNAL"),
    errors.TritonMissing: (500, "INTERNAL"),
    errors.TritonDidNotStart: (500, "INTERNAL"),
    errors.TritonFailed: (500, "INTERNAL"),
}


def test_every_class_of_error_is_in_the_table_of_this_test() -> None:
    classes = {kind for _, kind in inspect.getmembers(errors, inspect.isclass)}
    assert {kind for kind in classes if issubclass(kind, ServegateError)} == set(EXPECTED)


def test_every_error_has_its_status_in_both_protocols() -> None:
    for kind in EXPECTED:
        error = kind.__new__(kind)
        http, name = EXPECTED[kind]
        assert status.http_status(error) == http, kind
        assert status.grpc_code(error) == grpc.StatusCode[name].value[0], kind


def test_metrics_call_every_grpc_status_by_its_name() -> None:
    for code in grpc.StatusCode:
        assert status.code_name("grpc", code.value[0]) == code.name, code


def test_metrics_call_a_grpc_status_that_does_not_exist_by_its_number() -> None:
    assert [status.code_name("grpc", number) for number in (17, 999, -1)] == ["17", "999", "-1"]


def test_metrics_call_an_http_status_by_its_number() -> None:
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


EARLY = (errors.UnknownVersion("x", "9"), errors.BadVersion("9" * 20), errors.MethodNotAllowed("x"))


def test_what_is_found_early_is_plain_text_to_infer_and_ready_and_json_to_the_others() -> None:
    for verb in Verb:
        for error in EARLY:
            media = b"text/plain" if verb in (Verb.INFER, Verb.READY) else b"application/json"
            assert dict(status.http_error(error, verb).headers)[b"content-type"] == media


def test_a_path_that_nobody_serves_is_told_in_plain_text_and_an_overload_is_not() -> None:
    for verb in Verb:
        for error, media in ((errors.NotHere("x"), b"text/plain"), (errors.NoRoom(5), JSON)):
            assert dict(status.http_error(error, verb).headers)[b"content-type"] == media


def test_whoever_shows_no_key_is_told_how_to_show_one() -> None:
    headers = dict(status.http_error(errors.Unauthenticated()).headers)
    assert headers[b"www-authenticate"] == b'Bearer realm="servegate"'


def test_statistics_of_what_does_not_exist_are_a_wrong_argument() -> None:
    for error, said in (
        (errors.UnknownModel("m"), "requested model 'm' is not available"),
        (
            errors.UnknownVersion("m", "9"),
            "requested model version is not available for model 'm'",
        ),
    ):
        over_http, over_grpc = (status.no_statistics(one, error) for one in ("http", "grpc"))
        assert over_http is not None and over_grpc is not None, error
        assert (over_http.status, json.loads(over_http.body)) == (400, {"error": said}), error
        assert (over_grpc.status, over_grpc.message) == (status.INVALID_ARGUMENT, said), error


def test_statistics_of_what_cannot_be_reached_are_an_error_like_any_other() -> None:
    assert status.no_statistics("http", errors.NoReplica("m", "1")) is None


def test_what_passes_by_itself_says_when_to_try_again() -> None:
    for error in (
        errors.Overloaded("m", 5),
        errors.NoRoom(5),
        errors.NoReplica("m", "1"),
        errors.NotLoaded("m", "1"),
        errors.NoSnapshot(),
    ):
        assert dict(status.http_error(error).headers)[b"retry-after"] == b"1", error


def test_a_pool_that_sleeps_takes_longer_to_come_back_than_a_second() -> None:
    error = errors.Asleep("m")
    told = dict(status.http_error(error).headers)[b"retry-after"]
    assert int(told) == error.retry_after > 1


def test_what_does_not_pass_says_nothing_of_trying_again() -> None:
    for error in (errors.OutcomeUnknown("x"), errors.BodyTooLarge(5), errors.TooSlow("x", 5)):
        assert b"retry-after" not in dict(status.http_error(error).headers), error


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


def rpc(code: grpc.StatusCode, message: str) -> Reply:
    return Reply(code.value[0], b"", (), message)


UNKNOWN = "Request for unknown model: 'm' version 2 is not found"
NOT_READY = "Request for unknown model: 'm' version 2 is not at ready state"
FULL = "Exceeds maximum queue size"
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
PLAIN = VersionTarget("ours", 1, "m", 2, "onnxruntime", ("a",))
COMPOSED = VersionTarget("ours", 1, "m", 2, "ensemble", ("a",), calls_others=True)


def test_a_refusal_of_triton_proves_that_nothing_was_executed() -> None:
    for protocol, reply, lacks_version in (
        ("http", http(404, UNKNOWN), True),
        ("http", http(503, NOT_READY), True),
        ("http", http(503, FULL), False),
        ("http", http(404, "Request for unknown model: 'm' is not found"), True),
        ("http", http(404, "Request for unknown model: 'm' has no available versions"), True),
        ("http", http(503, f"[request id: 1] {FULL}"), False),
        ("http", http(503, f"[request id: <id_unknown>] {STOPPING}"), False),
        ("http", http(503, "Server is stopping to serve requests."), False),
        ("http", http(503, "Server not ready"), False),
        ("grpc", rpc(grpc.StatusCode.NOT_FOUND, UNKNOWN), True),
        ("grpc", rpc(grpc.StatusCode.UNAVAILABLE, NOT_READY), True),
        ("grpc", rpc(grpc.StatusCode.UNAVAILABLE, f"[request id: 1] {FULL}"), False),
        ("grpc", rpc(grpc.StatusCode.UNAVAILABLE, "Server not ready"), False),
    ):
        refusal = status.refusal(protocol, Verb.INFER, reply, PLAIN)
        assert refusal is not None, (protocol, reply)
        assert refusal.lacks_version is lacks_version, (protocol, reply)


def test_any_other_answer_is_the_answer() -> None:
    for protocol, reply in (
        ("http", http(200, UNKNOWN)),
        ("http", Reply(503, b"")),
        ("http", Reply(503, b"[]")),
        ("http", http(503, "a model's own code answers UNAVAILABLE after it has run")),
        ("http", http(404, "Request for unknown model: 'a part of m' is not found")),
        ("http", http(404, f"while asking a part: {UNKNOWN}")),
        ("http", http(404, f"{UNKNOWN}, says another server")),
        ("http", http(404, UNKNOWN.replace("2", "3"))),
        ("http", http(503, NOT_READY.replace("2", "22"))),
        ("http", http(503, f"the second step says: {FULL}")),
        ("http", http(503, f"in ensemble 'm', [request id: 1] {FULL}")),
        ("http", http(503, f"{FULL}, says the second step")),
        ("http", http(503, "Server is stopping")),
        ("grpc", rpc(grpc.StatusCode.NOT_FOUND, UNKNOWN.replace("'m'", "'n'"))),
        ("http", http(400, UNKNOWN)),
        ("http", http(404, "Not Found")),
        ("http", http(429, FULL)),
        ("http", http(500, FULL)),
        ("http", http(502, "")),
        ("http", http(504, "")),
        ("grpc", rpc(grpc.StatusCode.OK, "")),
        ("grpc", rpc(grpc.StatusCode.UNAVAILABLE, "Socket closed")),
        ("grpc", rpc(grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)")),
        ("grpc", rpc(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls")),
        ("grpc", rpc(grpc.StatusCode.NOT_FOUND, "file not found")),
        ("grpc", rpc(grpc.StatusCode.INTERNAL, UNKNOWN)),
        ("grpc", rpc(grpc.StatusCode.RESOURCE_EXHAUSTED, FULL)),
    ):
        assert status.refusal(protocol, Verb.INFER, reply, PLAIN) is None, (protocol, reply)


def test_a_model_that_calls_others_may_pass_on_what_another_was_refused_with() -> None:
    for said in (FULL, f"[request id: 1] {FULL}", NOT_READY, "Server not ready"):
        over_grpc = rpc(grpc.StatusCode.UNAVAILABLE, said)
        assert status.refusal("http", Verb.INFER, http(503, said), COMPOSED) is None, said
        assert status.refusal("grpc", Verb.INFER, over_grpc, COMPOSED) is None, said


def test_a_replica_that_lacks_a_model_that_calls_others_has_not_executed_it() -> None:
    refusal = status.refusal("http", Verb.INFER, http(404, UNKNOWN), COMPOSED)
    assert refusal is not None and refusal.lacks_version


def test_only_predict_calls_are_refused_by_a_busy_server() -> None:
    for verb in Verb:
        refusal = status.refusal("http", verb, http(503, FULL), PLAIN)
        assert (refusal is not None) is (verb in PREDICTIONS), verb


def test_a_version_that_is_absent_is_recognised_in_answers_to_questions_too() -> None:
    for verb in Verb:
        refusal = status.refusal("http", verb, http(404, UNKNOWN), PLAIN)
        may_be_told = PREDICTIONS | {Verb.STREAM, Verb.METADATA, Verb.CONFIG}
        assert (refusal is not None) is (verb in may_be_told), verb


def test_words_of_a_caller_that_are_no_text_are_told_as_far_as_they_are() -> None:
    """JSON can name half a character, which UTF-8 cannot say."""
    assert status.http_error(errors.BadRequest("'\ud800é'")).body == '{"error":"\'?é\'"}'.encode()
