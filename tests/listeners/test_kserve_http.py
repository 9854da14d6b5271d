"""The HTTP data listener as an ASGI application in front of a gateway with a fake transport."""

import asyncio
import json
from collections.abc import Mapping

import pytest
from builders import GOOD, Answered, DataPlane, Outcome, ask, snapshot, target, view

from serve.core.calls import Headers, Reply, Verb
from serve.core.errors import NotSent, OutcomeUnknown
from serve.core.snapshot import Snapshot
from serve.listeners.kserve_http import KServeHttp

ONE = snapshot(view(target(1, "a"), labels={"stable": 1}), generation=7)
INFER = b"/v2/models/m/infer"
LIMIT = 100  # bytes


class Scene:
    """The listener, and the data plane behind it."""

    def __init__(
        self,
        now: Snapshot | None = ONE,
        outcomes: Mapping[str, Outcome] | None = None,
        *,
        draining: bool = False,
        limit: int = 100,
    ) -> None:
        self.plane = DataPlane(now, outcomes, limit=limit)
        self._app = KServeHttp(
            self.plane.gateway,
            max_body=LIMIT,
            timeout=30,
            clock=self.plane.clock,
            is_draining=lambda: draining,
        )

    def get(self, path: bytes) -> Answered:
        return asyncio.run(ask(self._app, "GET", path))

    def post(self, *chunks: bytes, path: bytes = INFER, headers: Headers = ()) -> Answered:
        return asyncio.run(ask(self._app, "POST", path, *chunks, headers=headers))


def code(answered: Answered) -> str:
    """The gateway's own error code; the body must have the shape that clients read."""
    assert set(json.loads(answered.body)) == {"error"}
    return answered.headers[b"servegate-error"].decode()


def test_an_answer_passes_unchanged_with_the_decision_beside_it() -> None:
    answered = Scene().post(b"{}")
    assert (answered.status, answered.body) == (200, GOOD.body)
    assert answered.headers == {
        b"content-type": b"application/json",
        b"content-length": str(len(GOOD.body)).encode(),
        b"servegate-version": b"1; by=latest; generation=7",
    }


def test_an_error_of_triton_passes_unchanged_too() -> None:
    reply = Reply(400, b'{"error":"unexpected shape"}', ((b"content-type", b"application/json"),))
    answered = Scene(outcomes={"a": reply}).post(b"{}")
    assert (answered.status, answered.body) == (400, reply.body)
    assert b"servegate-error" not in answered.headers


def test_the_body_arrives_whole_however_it_was_cut() -> None:
    scene = Scene()
    scene.post(b"ab", b"", b"cd", b"e")
    assert scene.plane.http.calls[0].body == b"abcde"


def test_the_call_carries_what_belongs_to_it_and_not_what_belongs_to_the_hop() -> None:
    scene = Scene()
    headers: Headers = (
        (b"host", b"gateway"),
        (b"content-length", b"2"),
        (b"connection", b"x-hop"),
        (b"x-hop", b"1"),
        (b"accept-encoding", b"gzip"),
        (b"content-type", b"application/json"),
    )
    scene.post(b"{}", path=b"/v2/models/m/versions/stable/infer", headers=headers)
    [made] = scene.plane.http.calls
    assert (made.verb, made.model, made.selector) == (Verb.INFER, "m", "stable")
    assert made.headers == ((b"accept-encoding", b"gzip"), (b"content-type", b"application/json"))
    assert made.deadline == scene.plane.clock.now + 30


def test_a_label_says_so_in_the_decision() -> None:
    answered = Scene().post(b"{}", path=b"/v2/models/m/versions/stable/infer")
    assert answered.headers[b"servegate-version"] == b"1; by=label:stable; generation=7"


def test_a_body_of_the_largest_size_is_taken() -> None:
    assert Scene().post(b"x" * LIMIT).status == 200


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        ((b"x" * LIMIT, b"x"), ()),
        ((b"",), ((b"content-length", str(LIMIT + 1).encode()),)),
    ],
    ids=["by its bytes", "by its announcement"],
)
def test_a_body_that_is_too_large_is_refused_and_not_sent(
    chunks: tuple[bytes, ...], headers: Headers
) -> None:
    scene = Scene()
    answered = scene.post(*chunks, headers=headers)
    assert (answered.status, code(answered)) == (413, "body_too_large")
    assert scene.plane.http.calls == []


def test_a_client_that_leaves_in_the_middle_of_its_request_causes_no_call() -> None:
    scene = Scene()

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        pass

    scope = {"type": "http", "method": "POST", "raw_path": INFER, "headers": []}
    asyncio.run(scene._app(scope, receive, send))
    assert scene.plane.http.calls == []


@pytest.mark.parametrize("length", [b"3", b"x", b"-1", b"9" * 5000])
def test_a_fault_of_framing_is_refused_and_not_sent(length: bytes) -> None:
    scene = Scene()
    answered = scene.post(b"{}", headers=((b"inference-header-content-length", length),))
    assert (answered.status, code(answered)) == (400, "bad_request")
    assert scene.plane.http.calls == []


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("POST", b"/v2/models/nope/infer", 404, "unknown_model"),
        ("POST", b"/v2/models/m/versions/9/infer", 404, "unknown_version"),
        ("POST", b"/v2/models/m/versions/" + b"9" * 5000 + b"/infer", 404, "unknown_version"),
        ("POST", b"/v2/models/m/versions/canary/infer", 404, "unknown_label"),
        ("GET", b"/v2/nothing", 404, "not_here"),
        ("GET", INFER, 405, "method_not_allowed"),
        ("POST", b"/v2/repository/models/m/load", 403, "not_served"),
    ],
)
def test_an_error_of_ours_says_that_it_is_ours(
    method: str, path: bytes, status: int, error: str
) -> None:
    scene = Scene()
    answered = scene.get(path) if method == "GET" else scene.post(b"{}", path=path)
    assert (answered.status, code(answered)) == (status, error)


def test_an_unknown_model_is_told_as_triton_tells_it() -> None:
    answered = Scene().post(b"{}", path=b"/v2/models/sim%70le/infer")
    assert json.loads(answered.body)["error"].startswith(
        "Request for unknown model: 'sim%70le' is not found"
    )
    assert answered.headers[b"content-type"] == b"text/plain"


@pytest.mark.parametrize(
    ("now", "outcome", "status", "error"),
    [
        (None, GOOD, 503, "no_snapshot"),
        (snapshot(view()), GOOD, 503, "no_replica"),
        (ONE, NotSent("refused"), 503, "no_replica"),
        (ONE, OutcomeUnknown("broke"), 502, "outcome_unknown"),
    ],
)
def test_what_the_gateway_cannot_do_is_told_with_its_code(
    now: Snapshot | None, outcome: Outcome, status: int, error: str
) -> None:
    answered = Scene(now, {"a": outcome}).post(b"{}")
    assert (answered.status, code(answered)) == (status, error)
    assert (b"retry-after" in answered.headers) == (status == 503)


def test_too_many_calls_are_refused_with_a_time_to_try_again() -> None:
    answered = Scene(limit=0).post(b"{}")
    assert (answered.status, code(answered)) == (429, "overloaded")
    assert answered.headers[b"retry-after"] == b"1"


@pytest.mark.parametrize(
    ("now", "draining", "live", "ready"),
    [
        (ONE, False, (200, {"live": True}), (200, {"ready": True})),
        (ONE, True, (200, {"live": True}), (400, {"ready": False})),
        (None, False, (200, {"live": True}), (400, {"ready": False})),
    ],
    ids=["serving", "draining", "no snapshot"],
)
def test_health_is_told_as_triton_and_as_open_inference_tell_it(
    now: Snapshot | None,
    draining: bool,
    live: tuple[int, dict[str, bool]],
    ready: tuple[int, dict[str, bool]],
) -> None:
    scene = Scene(now, draining=draining)
    answers = [scene.get(b"/v2/health/live"), scene.get(b"/v2/health/ready")]
    assert [(one.status, json.loads(one.body)) for one in answers] == [live, ready]


@pytest.mark.parametrize(
    ("now", "path"),
    [
        (ONE, b"/v2/models/nope/ready"),
        (ONE, b"/v2/models/m/versions/9/ready"),
        (ONE, b"/v2/models/m/versions/canary/ready"),
        (snapshot(view()), b"/v2/models/m/ready"),
        (None, b"/v2/models/m/ready"),
    ],
)
def test_a_model_that_is_not_there_is_not_ready_as_triton_says_it(
    now: Snapshot | None, path: bytes
) -> None:
    answered = Scene(now).get(path)
    assert (answered.status, answered.headers[b"content-type"]) == (400, b"text/plain")
    assert json.loads(answered.body) == {"error": "Model version not ready"}


def test_calls_that_come_while_draining_are_still_served() -> None:
    assert Scene(draining=True).post(b"{}").status == 200


def test_questions_carry_no_body_and_no_decision_where_none_was_made() -> None:
    scene = Scene()
    metadata = scene.get(b"/v2")
    assert (metadata.status, b"servegate-version" in metadata.headers) == (200, False)
    scene.get(b"/v2/models/m")
    assert [(one.verb, one.body) for one in scene.plane.http.calls] == [
        (Verb.SERVER_METADATA, b""),
        (Verb.METADATA, b""),
    ]


@pytest.mark.parametrize(("sequences", "key"), [(True, "n5"), (False, "")])
def test_correlation_ids_are_read_only_for_models_with_sequences(sequences: bool, key: str) -> None:
    scene = Scene(snapshot(view(target(1, "a"), sequences=sequences)))
    scene.post(b'{"parameters":{"sequence_id":5}}')
    assert scene.plane.http.calls[0].sequence == key


def test_a_length_that_triton_wrote_is_written_anew() -> None:
    reply = Reply(200, b"abc", ((b"content-length", b"999"), (b"x-a", b"1")))
    answered = Scene(outcomes={"a": reply}).post(b"{}")
    assert answered.headers[b"content-length"] == b"3"
    assert answered.headers[b"x-a"] == b"1"
