"""TensorFlow Serving's calls on their way to a replica: what REST and gRPC have in common.

A call in TensorFlow Serving's words becomes one infer call in Triton's, over HTTP, with binary
tensors. What the model takes is read from its configuration, once for each version and generation
of the snapshot, and again after a call that Triton refused, for its model may have been changed.

    begin ──▶ signature ──▶ the request's tensors ──▶ infer ──▶ the answer's tensors ──▶ answered

Both steps that ask a replica go on to another one where the retry rule allows it.
"""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from serve.core import faults
from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import (
    Asleep,
    BadRequest,
    ConversionTooLarge,
    NoRoom,
    NotLoaded,
    NotSent,
    OutcomeUnknown,
    ServegateError,
    UnknownModel,
)
from serve.core.limits import Limits
from serve.core.snapshot import ModelView, VersionTarget
from serve.listeners.waits import until_awake, until_loaded
from serve.processes.compute import ComputeProcess
from serve.processes.kernel import return_memory
from serve.proxy.attempts import NOWHERE, Attempt
from serve.proxy.gateway import Gateway
from serve.proxy.mirrors import MOST_REQUEST, MOST_RESPONSE, MirroredCall
from serve.tensors.tfserving_examples import label_table
from serve.tensors.tfserving_infer import InferBody, infer_body, read_outputs
from serve.tensors.tfserving_tensors import LARGE, RawTensor, ServingSignature, signature_of
from serve.triton.http_connection import HttpConnection
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import model_names
from serve.wire.kserve_http import end_to_end, upstream_path
from serve.wire.status import code_name
from serve.wire.tfserving_rest import Servable, TritonRefused, statuses, told

WEIGHT = 8  # bytes of Python's objects for each byte of a message that is taken apart
# One at a time: each thread that computes adds to the time that an event loop waits for its turn.
_CONVERTER = ThreadPoolExecutor(1, "converter")
_LASTING = 8 << 20  # bytes; the memory of a larger call would stay with the process
_RETURNED_AFTER = 5.0  # seconds: the answer has to be sent, and one turn may serve many calls
_HEAD_LENGTH = b"inference-header-content-length"
_NOT_PASSED = frozenset(
    {b"content-type", b"content-encoding", b"accept", b"accept-encoding", _HEAD_LENGTH}
)
_NONE: Headers = ()

T = TypeVar("T")


@dataclass(slots=True)
class _Known:
    """What is known of one version in Triton: its signature, and labels by output."""

    signature: ServingSignature
    labels: dict[str, tuple[bytes, ...]] = field(default_factory=dict)


class TfServing:
    """The way of these calls. `clock` gives monotonic seconds."""

    def __init__(
        self, gateway: Gateway, pool: Pool, *, limits: Limits, clock: Callable[[], float]
    ) -> None:
        self.compute = ComputeProcess()
        self.limits = limits
        self.clock = clock
        self.gateway = gateway
        self._pool = pool
        self._known: dict[tuple[str, int], _Known] = {}
        self._generation = 0
        self._held = 0
        self._returning: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<TfServing signatures={len(self._known)} generation={self._generation}>"

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count bytes that a call takes in memory; `BodyTooLarge` or `NoRoom` beyond the limit."""
        limit = self.limits.in_flight
        if size > limit:
            raise ConversionTooLarge(size, limit)
        if self._held + size > limit:
            raise NoRoom(limit)
        self._held += size
        try:
            yield
        finally:
            self._held -= size
            if size > _LASTING:
                self._return_memory_later()

    def _return_memory_later(self) -> None:
        """Some seconds after the last of several large calls."""
        if self._returning is not None:
            self._returning.cancel()
        loop = asyncio.get_running_loop()
        self._returning = loop.call_later(_RETURNED_AFTER, _CONVERTER.submit, return_memory)

    def view(self, call: Call) -> ModelView | None:
        """The model as the caller may see it, if at all. `Unauthenticated` is counted."""
        snapshot, sees = self.gateway.fleet(replace(call, model="", selector=""))
        return snapshot.models.get(call.model) if sees(call.model) else None

    def check(self, call: Call) -> None:
        """Before a body is read: who calls is known, and so is the model."""
        if self.view(call) is None:
            error = UnknownModel(call.model)
            self.failed(call, error)
            raise error

    def failed(self, call: Call, error: ServegateError) -> None:
        """Count a call that failed before it was begun."""
        self.gateway.ended(call, None, NOWHERE, error.code, self.clock(), error=error.code)

    def statuses(self, call: Call, servable: Servable) -> list[dict[str, Any]]:
        """The status of one version of a model, or of all; what is wrong with it is counted."""
        view = self.view(call)
        try:
            return statuses(servable, view)
        except ServegateError as error:
            self.failed(call, error)
            raise

    def answered(self, call: Call) -> None:
        """Count a call that needed no replica."""
        code = code_name(call.protocol, 0 if call.protocol == "grpc" else 200)
        self.gateway.ended(call, None, NOWHERE, code, self.clock(), good=True)

    @asynccontextmanager
    async def begin(self, call: Call, headers: Headers = _NONE) -> AsyncIterator["Calling"]:
        """A call on its way; an error that ends it is counted. `headers` go on to Triton."""
        try:
            attempt = self.gateway.begin(call)
        except Asleep:
            attempt = await until_awake(self.gateway, call)
        calling = Calling(self, attempt, headers)
        try:
            yield calling
        except ServegateError as error:
            calling.attempt.failed(error)
            raise
        finally:
            calling.attempt.left()

    def known(self, attempt: Attempt) -> _Known | None:
        """What is known of the version that the attempt goes to."""
        choice = attempt.choice
        assert choice is not None
        if choice.generation != self._generation:
            self._known.clear()
            self._generation = choice.generation
        return self._known.get(_key(choice.target))

    def learn(self, attempt: Attempt, signature: ServingSignature) -> _Known:
        """Keep the signature of the version that the attempt goes to."""
        assert attempt.choice is not None
        known = self._known[_key(attempt.choice.target)] = _Known(signature)
        return known

    def forget(self, attempt: Attempt) -> None:
        """Triton refused what was made from it: perhaps the model is another one now."""
        assert attempt.choice is not None
        self._known.pop(_key(attempt.choice.target), None)

    async def fetch(self, attempt: Attempt, head: bytes, body: Sequence[bytes]) -> Reply:
        """One request to the attempt's replica; it keeps its slot when its caller leaves first."""

        def leave(connection: HttpConnection) -> None:
            until = attempt.begun + self.limits.call
            self._pool.absorb(connection, attempt.detach().free, until=until)

        deadline = attempt.call.deadline
        return await self._pool.fetch(attempt.replica, head, deadline, leave, body=body)


class Calling:
    """One call on its way. `seconds` is how long Triton took for its tensors."""

    def __init__(self, facade: TfServing, attempt: Attempt, headers: Headers) -> None:
        self.attempt = attempt
        self.seconds = 0.0
        self._executed: tuple[bytes, InferBody, Reply] | None = None
        self._facade = facade
        passed = (pair for pair in end_to_end(headers) if pair[0] not in _NOT_PASSED)
        self._lines = header_lines(tuple(passed))

    def __repr__(self) -> str:
        return f"<Calling {self.attempt!r}>"

    @property
    def compute(self) -> ComputeProcess:
        """What converts large documents."""
        return self._facade.compute

    @property
    def version(self) -> int:
        """The version that answers, as callers number it."""
        return self._target.version

    @property
    def _target(self) -> VersionTarget:
        choice = self.attempt.choice
        assert choice is not None
        return choice.target

    async def signature(self) -> ServingSignature:
        """What the version takes and gives."""
        known = self._facade.known(self.attempt)
        if known is None:
            reply = await self._ask("GET", Verb.CONFIG, self._lines + b"\r\n")
            try:
                signature = signature_of(json.loads(reply.body))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ServegateError("the configuration cannot be read", why=repr(error)) from error
            known = self._facade.learn(self.attempt, signature)
        return known.signature

    async def infer(
        self, inputs: Mapping[str, RawTensor], outputs: Sequence[str] = ()
    ) -> dict[str, RawTensor]:
        """Execute the model; all outputs unless some are named."""
        return read_outputs(*await self.execute(inputs, outputs))

    async def execute(
        self, inputs: Mapping[str, RawTensor], outputs: Sequence[str] = ()
    ) -> tuple[bytes, int | None]:
        """The same, for `read_outputs`: the answer, and the length of its JSON head."""
        known = self._facade.known(self.attempt)
        for name, tensor in inputs.items():  # Triton 2.51 never answers an empty batch
            if known and known.signature.is_batched and tensor.shape[:1] == (0,):
                raise BadRequest(f"the batch of input '{name}' is empty")
        return await self._execute(infer_body(inputs, outputs))

    async def labels(
        self, inputs: Mapping[str, RawTensor], output: str, count: int
    ) -> tuple[bytes, ...]:
        """The labels of an output's classes, from one more execution when they are not known."""
        known = self._facade.known(self.attempt)
        labels = known.labels.get(output) if known else None
        if labels is None:
            answer = await self._execute(infer_body(inputs, (output,), classes=count))
            labels = label_table(read_outputs(*answer)[output])
            if known:
                known.labels[output] = labels
        return labels

    def answered(self) -> None:
        """The answer is made: the call has ended."""
        executed, self._executed = self._executed, None
        self.attempt.answered(0 if self.attempt.call.protocol == "grpc" else 200, good=True)
        if executed is not None:
            faults.contained(self, self._mirror, *executed)

    async def _execute(self, body: InferBody) -> tuple[bytes, int | None]:
        begun = self._facade.clock()
        lines = (
            b"%b: %d\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
            % (
                _HEAD_LENGTH,
                len(body.head),
                len(body.head) + sum(map(len, body.tensors)),
            )
        )
        lines = self._lines + lines
        reply = await self._ask("POST", Verb.INFER, lines + body.head, body.tensors)
        self.seconds = self._facade.clock() - begun
        if self._executed is None:  # another execution only finds out the labels
            self._executed = (lines, body, reply)
        length = next((int(value) for name, value in reply.headers if name == _HEAD_LENGTH), None)
        return reply.body, length

    def _mirror(self, lines: bytes, body: InferBody, reply: Reply) -> None:
        """Offer a copy of what was executed, if the call is one of those to be mirrored."""
        mirrors, choice = self._facade.gateway.mirrors, self.attempt.choice
        if mirrors is None or choice is None or not mirrors.wants(choice):
            return
        pieces = (body.head, *body.tensors)
        size = sum(map(len, pieces))
        if size > MOST_REQUEST:
            mirrors.drop(choice, "too_large")
            return
        response = reply if len(reply.body) <= MOST_RESPONSE else None
        mirrors.offer(MirroredCall(choice, "http", lines, pieces, size, response))

    async def _ask(
        self, method: str, verb: Verb, rest: bytes, tensors: Sequence[bytes] = ()
    ) -> Reply:
        """Ask one replica after the other, as long as the rule allows; `TritonRefused`."""
        facade = self._facade
        while True:
            attempt, target = self.attempt, self._target
            path = upstream_path(verb, target.physical_name, target.physical_version)
            start = request_line(method, attempt.replica, path)
            try:
                reply = await facade.fetch(attempt, start + rest, tensors)
            except NotSent as error:
                attempt.not_sent(error)
                continue
            except OutcomeUnknown as error:
                attempt.broken_off(error)
                continue
            if 200 <= reply.status < 300:
                return reply
            seen = reply
            if attempt.call.protocol == "grpc":
                said = told(TritonRefused(reply), None)
                seen = Reply(said.grpc, b"", (), said.message)
            try:
                is_refused = attempt.refused(seen)
            except NotLoaded as error:
                self.attempt = await until_loaded(facade.gateway, attempt, error)
                if _key(self._target) != _key(target):  # what is sent was made for another version
                    raise error from None
                continue
            if not is_refused:
                facade.forget(attempt)
                attempt.answered(seen.status, good=False)
                body = model_names.in_error(reply.body, target)
                raise TritonRefused(Reply(reply.status, body))


async def away(size: int, work: Callable[[], T]) -> T:
    """Do it in a thread when it is about so many bytes that others would wait for it.

    What it makes is no garbage, and looking for garbage among millions of objects stops all threads
    for a tenth of a second: the thread does without. The event loop gets its turn ten times as
    quickly as by default, because each other call needs several turns.
    """
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_CONVERTER, _in_thread, work)


def _in_thread(work: Callable[[], T]) -> T:
    gc.disable()
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 10)
    try:
        return work()
    finally:
        sys.setswitchinterval(usual)
        gc.enable()


def _key(target: VersionTarget) -> tuple[str, int]:
    return target.physical_name, target.physical_version
