"""Server reflection on the gRPC port, as an extension of the gateway's own (`wire.reflection`).

It tells what is public anyway, the protocol, so it needs no key.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

from serve.listeners.grpc.services import Service, ServiceRequest, Streaming
from serve.wire.reflection import METHODS, Reflection

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb")
"""A `FileDescriptorSet`; `scripts/descriptors.py` writes it."""


class ReflectionService:
    """The descriptors are read when somebody asks for the first time.

    `more` are further `FileDescriptorSet`s, serialised.
    """

    def __init__(self, *more: bytes) -> None:
        self._more = more
        self._reflection: Reflection | None = None

    def __repr__(self) -> str:
        return f"<ReflectionService {self._reflection}>"

    def services(self) -> dict[str, Service]:
        """Its methods, for `KServeGrpc(services=…)`."""
        return dict.fromkeys(METHODS, Streaming(self.answer))

    async def answer(
        self, asked: ServiceRequest, messages: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """One answer to each message."""
        reflection = self._reflection
        if reflection is None:
            known = DESCRIPTORS.read_bytes()
            reflection = self._reflection = Reflection(known, *self._more)
        async for message in messages:
            yield reflection.answer(message)
