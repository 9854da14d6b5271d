"""Calls to the data ports, over HTTP or gRPC: which version answered, why, and how fast."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote

from serve.cli.asked import Asked
from serve.core.calls import Verb
from serve.core.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    ServegateError,
    Unauthenticated,
    Unavailable,
)
from serve.tensors import codec
from serve.tensors.codec import InferReply
from serve.tensors.datatypes import Array, Shape
from serve.trust import channel_credentials, trust
from serve.wire import kserve_grpc

TIMEOUT = 300.0  # seconds for one call, as the gateway's own default
_DECISION = "servegate-version"
_ERROR_CODE = "servegate-error"

_BY_STATUS: dict[int, type[ServegateError]] = {
    HTTPStatus.BAD_REQUEST: BadRequest,
    HTTPStatus.UNPROCESSABLE_ENTITY: BadRequest,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: BadRequest,
    HTTPStatus.UNAUTHORIZED: Unauthenticated,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.TOO_MANY_REQUESTS: Unavailable,
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable,
    HTTPStatus.BAD_GATEWAY: OutcomeUnknown,
}
_BY_GRPC_CODE: dict[str, type[ServegateError]] = {
    "INVALID_ARGUMENT": BadRequest,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": Forbidden,
    "NOT_FOUND": NotFound,
    "ABORTED": Conflict,
    "RESOURCE_EXHAUSTED": Unavailable,
    "UNAVAILABLE": Unavailable,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output as metadata describes it; -1 in `shape` is any length."""

    name: str
    datatype: str
    shape: Shape

    @property
    def has_batch(self) -> bool:
        """Whether the first dimension counts the rows of a batch."""
        return self.shape[:1] == (-1,)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model takes and gives."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply and the decision behind it. `by` is empty and `generation` None without a gateway."""

    reply: InferReply
    version: str
    by: str
    generation: int | None
    milliseconds: float


class Caller(Protocol):
    """One way to the data port; a context manager that keeps its connection."""

    def infer(
        self, asked: Asked, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> Answer:
        """One call. Raises what the gateway answers instead of a reply."""
        ...


class HttpCaller:
    """KServe v2 over HTTP, with binary tensors. `key` is an API key, empty for none."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, key: str = "") -> None:
        import httpx2

        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._errors = httpx2
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(timeout, connect=5.0),
            # Compressed tensors cost time and win little.
            headers={"Accept-Encoding": "identity", **dict(_shown(key))},
            trust_env=False,
            verify=trust(),
        )

    def __repr__(self) -> str:
        return f"<HttpCaller {self._url}>"

    def __enter__(self) -> "HttpCaller":
        """Nothing to open: the first call connects."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the connection."""
        self._client.close()

    def metadata(self, asked: Asked) -> Metadata:
        """What the model takes and gives."""
        answer = self._send("GET", _path(asked))
        try:
            document = answer.json()
            return Metadata(_specs(document["inputs"]), _specs(document["outputs"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ServegateError(
                f"the metadata of model '{asked.model}' cannot be read",
                why=answer.text[:200],
                try_this="--url of a data port, not of the admin API",
            ) from error

    def infer(
        self, asked: Asked, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> Answer:
        """See `Caller`."""
        request = codec.http_request(inputs, datatypes)
        begun = time.perf_counter()
        answer = self._send(
            "POST", f"{_path(asked)}/infer", content=request.body, headers=request.headers
        )
        milliseconds = (time.perf_counter() - begun) * 1000
        length = answer.headers.get(codec.HEAD_LENGTH_HEADER)
        reply = codec.read_http_reply(
            answer.content, int(length) if length and length.isdigit() else None
        )
        return _answer(reply, answer.headers.get(_DECISION, ""), milliseconds)

    def _send(self, method: str, path: str, **sent: Any) -> Any:
        try:
            answer = self._client.request(method, self._url + path, **sent)
        except self._errors.TimeoutException as error:
            raise DeadlineExceeded from error
        except (self._errors.HTTPError, self._errors.InvalidURL) as error:
            raise _no_answer(self._url, str(error), "--url") from error
        if answer.is_success:
            return answer
        if answer.status_code == HTTPStatus.GATEWAY_TIMEOUT:
            raise DeadlineExceeded
        kind = _BY_STATUS.get(answer.status_code, ServegateError)
        raise _told(kind, _error_text(answer), answer.headers.get(_ERROR_CODE, ""))


class GrpcCaller:
    """KServe v2 over gRPC, by TLS if the target begins with https. `key` may be empty for none."""

    def __init__(self, target: str, *, timeout: float = TIMEOUT, key: str = "") -> None:
        import grpc

        self._target = target.rpartition("://")[2].rstrip("/")
        self._timeout = timeout
        self._metadata = _shown(key)
        self._error: type[Exception] = grpc.RpcError
        self._channel = _channel(grpc, self._target, secure=target.startswith("https://"))

    def __repr__(self) -> str:
        return f"<GrpcCaller {self._target}>"

    def __enter__(self) -> "GrpcCaller":
        """Connect, so that the first call is not charged with it."""
        try:
            self._channel.unary_unary(kserve_grpc.SERVER_LIVE)(b"", timeout=10.0)
        except self._error as error:
            self._channel.close()
            raise _no_answer(self._target, _details(error), "--grpc-url") from error
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the channel."""
        self._channel.close()

    def infer(
        self, asked: Asked, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> Answer:
        """See `Caller`."""
        message = codec.grpc_request(
            asked.model, inputs, version=asked.selector, datatypes=datatypes
        )
        method = self._channel.unary_unary(kserve_grpc.method_of(Verb.INFER))
        begun = time.perf_counter()
        try:
            body, call = method.with_call(message, self._timeout, self._metadata)
        except self._error as error:
            raise grpc_error(error) from error
        milliseconds = (time.perf_counter() - begun) * 1000
        decision = _metadata_value(call.trailing_metadata(), _DECISION)
        return _answer(codec.read_grpc_reply(body), decision, milliseconds)


def _channel(grpc: Any, target: str, *, secure: bool) -> Any:
    options = (
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    )
    if secure:
        return grpc.secure_channel(target, channel_credentials(), options)
    return grpc.insecure_channel(target, options)


def _shown(key: str) -> tuple[tuple[str, str], ...]:
    """The header, or metadata, that shows a key."""
    return (("authorization", f"Bearer {key}"),) if key else ()


def _path(asked: Asked) -> str:
    path = f"/v2/models/{quote(asked.model)}"
    return f"{path}/versions/{quote(asked.selector)}" if asked.selector else path


def _specs(rows: Any) -> Mapping[str, TensorSpec]:
    specs = (
        TensorSpec(str(row["name"]), str(row["datatype"]), tuple(int(n) for n in row["shape"]))
        for row in rows
    )
    return MappingProxyType({spec.name: spec for spec in specs})


def _answer(reply: InferReply, decision: str, milliseconds: float) -> Answer:
    """`decision` is `2; by=split; generation=7`; Triton itself sends none."""
    version, *rest = [part.strip() for part in decision.split(";")]
    facts = dict(part.split("=", 1) for part in rest if "=" in part)
    generation = facts.get("generation", "")
    return Answer(
        reply=reply,
        version=version or reply.version,
        by=facts.get("by", ""),
        generation=int(generation) if generation.isdigit() else None,
        milliseconds=milliseconds,
    )


def _error_text(answer: Any) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        said = " ".join(answer.text.split())[:200]
        return f"the gateway answered {answer.status_code}" + (f": {said}" if said else "")


def grpc_error(error: Any) -> ServegateError:
    """What the gateway, or Triton, answers instead of a reply."""
    name = error.code().name
    if name == "DEADLINE_EXCEEDED":
        return DeadlineExceeded()
    kind = _BY_GRPC_CODE.get(name, ServegateError)
    code = _metadata_value(error.trailing_metadata(), _ERROR_CODE)
    return _told(kind, _details(error), code)


def _told(kind: type[ServegateError], text: str, code: str) -> ServegateError:
    """The gateway writes `what: why. Try: this`; the stable code comes beside it."""
    what, _, try_this = text.partition(". Try: ")
    error = kind(what, try_this=try_this)
    if code:
        error.code = code
    return error


def _details(error: Any) -> str:
    return str(error.details() or error.code().name)


def _metadata_value(metadata: Any, key: str) -> str:
    return next((str(value) for name, value in metadata or () if name == key), "")


def _no_answer(where: str, why: str, option: str) -> Unavailable:
    return Unavailable(
        f"the gateway at {where} does not answer",
        why=why,
        try_this=f"servegate up, or {option}",
    )
