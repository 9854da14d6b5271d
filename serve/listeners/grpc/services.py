"""Further services on the gRPC port: methods that the gateway answers with code of its own.

A service is a mapping of method paths to `Unary` and `Streaming`, given to `KServeGrpc(services=…)`
and asked before anything that goes to a Triton. A method of Triton's own service may stand in it,
too: then it is answered here.

    async def check(asked: Asked) -> Reply:                                  # Unary(check)
        return Reply(0, b"\\x08\\x01")

    async def echo(                                                          # Streaming(echo)
        asked: Asked, messages: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        async for message in messages:
            yield message

Each call runs as a task, which is cancelled when the client leaves, when the deadline passes and
when the gateway stops. Messages come whole, inflated, and without their prefix; so are answers.

* `Reply(0, body, headers)` is the answer and its trailing metadata; another status with a `message`
  is an error in words of the service's own. A `ServegateError` becomes the status that
  `wire.status` gives it; any other exception is logged and becomes INTERNAL.
* Nobody has looked at the credential. `gateway.begin(asked.call(verb, model))` and
  `gateway.fleet(asked.call(verb))` do, and count what they refuse; a service that asks neither
  needs no key. An attempt that was begun has to be ended, whatever happens.
* A stream's messages (of up to 256 KiB) are taken as the handler asks for them, and its answers go
  out as the client takes them: both sides are slowed down by the other. A stream has no deadline
  but the client's.

`triton.grpc_question.ask` puts a question to a replica.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from serve.core.calls import Call, CallOrigin, Headers, Reply, Verb

LARGEST_IN_STREAM = 1 << 18  # bytes of one message of a stream


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """One call of a service. `message` is the request, empty for a stream.

    `metadata` is what the client sent beyond what gRPC itself needs, `credential` the value of its
    Authorization, `deadline` monotonic seconds, `request_id` as the client will hear it.
    """

    method: str
    message: bytes = field(repr=False)
    metadata: Headers = field(repr=False)
    credential: bytes = field(repr=False)
    deadline: float
    request_id: str
    origin: CallOrigin

    def call(self, verb: Verb, model: str = "", selector: str = "", sequence: str = "") -> Call:
        """The call as the gateway wants it."""
        return Call(
            "grpc",
            verb,
            model,
            selector,
            self.deadline,
            sequence,
            credential=self.credential,
            origin=self.origin,
        )


UnaryHandler = Callable[[ServiceRequest], Awaitable[Reply]]
StreamHandler = Callable[[ServiceRequest, AsyncIterator[bytes]], AsyncGenerator[bytes, None]]


@dataclass(frozen=True, slots=True)
class Unary:
    """A method with one message and one answer."""

    answer: UnaryHandler


@dataclass(frozen=True, slots=True)
class Streaming:
    """A method with any number of messages and answers."""

    answer: StreamHandler


Service = Unary | Streaming
