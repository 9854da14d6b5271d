"""Calls to the data ports, over HTTP or gRPC: which version answered, why, and how fast."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.cli.asked import ModelReference
from serve.core.calls import Verb
from serve.core.errors import DeadlineExceeded, Unavailable
from serve.tensors import codec
from serve.tensors.codec import InferReply
from serve.tensors.datatypes import Array
from serve.tensors.metadata import Metadata, read_metadata
from serve.trust import channel_credentials, trust
from serve.wire import data_answers, kserve_grpc
from serve.wire.data_answers import model_path

TIMEOUT = 300.0  # seconds for one call, as the gateway's own default


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply and the decision behind it. `by` is empty and `generation` None without a gateway."""

    reply: InferReply
    version: str
    by: str
    generation: int | None
    milliseconds: float


InferCall = Callable[[ModelReference, Mapping[str, Array], Mapping[str, str]], Answer]
"""One call, with inputs and their datatypes. Raises what the gateway answers instead of a reply."""


class HttpCaller:
    """KServe v2 over HTTP, with binary tensors. `key` is an API key, empty for none."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, key: str = "") -> None:
        import httpx2

        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._errors = httpx2
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(timeout, connect=5.0),
            # Compressed tensors cost time and win little.
            headers={"Accept-Encoding": "identity", **dict(data_answers.shown(key))},
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

    def metadata(self, asked: ModelReference) -> Metadata:
        """What the model takes and gives."""
        answer = self._send("GET", model_path(asked.model, asked.selector))
        try:
            document = answer.json()
        except ValueError:
            document = answer.text[:200]
        return read_metadata(document, asked.model)

    def infer(
        self, asked: ModelReference, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> Answer:
        """See `InferCall`."""
        request = codec.http_request(inputs, datatypes)
        begun = time.perf_counter()
        path = f"{model_path(asked.model, asked.selector)}/infer"
        answer = self._send("POST", path, content=request.body, headers=request.headers)
        milliseconds = (time.perf_counter() - begun) * 1000
        length = answer.headers.get(codec.HEAD_LENGTH_HEADER)
        reply = codec.read_http_reply(
            answer.content, int(length) if length and length.isdigit() else None
        )
        return _answer(reply, answer.headers.get(data_answers.DECISION, ""), milliseconds)

    def _send(self, method: str, path: str, **sent: Any) -> Any:
        try:
            answer = self._client.request(method, self._url + path, **sent)
        except self._errors.TimeoutException as error:
            raise DeadlineExceeded from error
        except (self._errors.HTTPError, self._errors.InvalidURL) as error:
            raise _no_answer(self._url, str(error), "--url") from error
        if answer.is_success:
            return answer
        code = answer.headers.get(data_answers.ERROR_CODE, "")
        raise data_answers.http_error(answer.status_code, answer.text, code)


class GrpcCaller:
    """KServe v2 over gRPC, by TLS if the target begins with https. `key` may be empty for none."""

    def __init__(self, target: str, *, timeout: float = TIMEOUT, key: str = "") -> None:
        import grpc

        self._target = target.rpartition("://")[2].rstrip("/")
        self._timeout = timeout
        self._metadata = data_answers.shown(key)
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
            raise _no_answer(
                self._target, data_answers.grpc_details(error), "--grpc-url"
            ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the channel."""
        self._channel.close()

    def infer(
        self, asked: ModelReference, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> Answer:
        """See `InferCall`."""
        return self._infer(asked, inputs, datatypes, is_stream=False)

    def stream(
        self, asked: ModelReference, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> Answer:
        """One call of a decoupled model: all its responses, as one answer."""
        return self._infer(asked, inputs, datatypes, is_stream=True)

    def _infer(
        self,
        asked: ModelReference,
        inputs: Mapping[str, Array],
        datatypes: Mapping[str, str],
        *,
        is_stream: bool,
    ) -> Answer:
        message = codec.grpc_request(
            asked.model, inputs, version=asked.selector, datatypes=datatypes
        )
        method = kserve_grpc.method_of(Verb.STREAM if is_stream else Verb.INFER)
        options = (self._timeout, self._metadata)
        begun = time.perf_counter()
        try:
            if is_stream:
                call = self._channel.stream_stream(method)(iter([message]), *options)
                bodies = list(call)
            else:
                body, call = self._channel.unary_unary(method).with_call(message, *options)
        except self._error as error:
            raise data_answers.grpc_error(error) from error
        milliseconds = (time.perf_counter() - begun) * 1000
        decision = data_answers.metadata_value(call.trailing_metadata(), data_answers.DECISION)
        reply = codec.read_grpc_stream(bodies) if is_stream else codec.read_grpc_reply(body)
        return _answer(reply, decision, milliseconds)


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


def _answer(reply: InferReply, decision: str, milliseconds: float) -> Answer:
    decided = data_answers.read_decision(decision)
    return Answer(
        reply=reply,
        version=decided.version or reply.version,
        by=decided.by,
        generation=decided.generation,
        milliseconds=milliseconds,
    )


def _no_answer(where: str, why: str, option: str) -> Unavailable:
    return Unavailable(
        f"the gateway at {where} does not respond",
        why=why,
        try_this=f"start it with servegate up, or pass {option}",
    )
