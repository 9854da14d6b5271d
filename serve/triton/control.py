"""Model control over gRPC: what one Triton holds, and the calls that change it.

Over gRPC and not HTTP, because Triton's HTTP load call blocks one of the threads that also serve
inference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from serve.core.errors import TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.triton import model_counters
from serve.triton.model_counters import Counters
from serve.wire import kserve_grpc, protobuf

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)
_LOG_FIELDS = {bool: "bool_param", int: "uint32_param"}
_NOT_EXPLICIT = "explicit model load / unload is not allowed"
_NOTHING_READY = "has no available versions"
_ANY = 0  # the version of an entry that was listed without one

Settings = Mapping[str, Any]  # a setting's value or values; None takes it back


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One version in a replica's repository index. `state` is READY, LOADING, UNAVAILABLE, …."""

    model: str
    version: int
    state: str
    reason: str


class NotExplicit(TritonFailed):
    """This Triton manages its models itself; load and unload calls are refused."""


class TritonControl:
    """The control connection to one replica. `timeout` of quick calls, in seconds."""

    def __init__(self, replica: Replica, *, timeout: float) -> None:
        self._replica = replica
        self._timeout = timeout
        self._channel = grpc.aio.insecure_channel(replica.grpc_target, options=_OPTIONS)
        # As bytes: Triton lists folders whose names are no UTF-8, which protobuf refuses to read.
        self._index = self._channel.unary_unary(kserve_grpc.SERVICE + "RepositoryIndex")
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._listed: tuple[bytes, tuple[IndexEntry, ...]] | None = (
            None  # an answer, and what it said
        )

    def __repr__(self) -> str:
        return f"<TritonControl {self._replica.name} {self._replica}>"

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def index(self) -> tuple[IndexEntry, ...]:
        """The versions that this server knows; names it has never loaded are left out.

        A name that two repositories have is listed without its versions, though Triton goes on
        serving what it has loaded of it (2.51): then it is asked which those are. The same answer
        gives the same object.
        """
        answer: bytes = await self._quick(self._index, b"")
        if self._listed is not None and self._listed[0] == answer:
            return self._listed[1]
        found: list[IndexEntry] = []
        is_whole = True
        for number, value in protobuf.fields(answer):
            entry = _entry(value) if number == 1 else None
            if entry is not None and entry.version == _ANY:
                is_whole = False
                ready = await self._ready(entry.model)
                found += [replace(entry, version=one, state="READY") for one in ready]
            elif entry is not None:
                found.append(entry)
        listed = tuple(found)
        self._listed = (answer, listed) if is_whole else None
        return listed

    async def _ready(self, model: str) -> tuple[int, ...]:
        """The versions of a model that can be called; none when it has none."""
        request = service_pb2.ModelMetadataRequest(name=model)
        try:
            answer = await self._quick(self._stub.ModelMetadata, request)
        except TritonFailed:
            return ()
        except Unavailable as error:
            if _NOTHING_READY in error.why:
                return ()
            raise
        return tuple(int(version) for version in answer.versions if version.isdigit())

    async def config(self, model: str) -> model_config_pb2.ModelConfig:
        """The configuration in force, as the backend completed it."""
        answer = await self._quick(
            self._stub.ModelConfig, service_pb2.ModelConfigRequest(name=model)
        )
        return answer.config

    async def statistics(self) -> Mapping[tuple[str, int], Counters]:
        """What it has counted of every version that it holds, by name in Triton and version."""
        request = service_pb2.ModelStatisticsRequest()
        return model_counters.read(await self._quick(self._stub.ModelStatistics, request))

    async def load(self, model: str, config: str | None) -> None:
        """Load a model; `config` (JSON) replaces its config.pbtxt until it is unloaded.

        Returns when all wanted versions are ready; `TritonFailed` says why one is not.
        """
        request = service_pb2.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            request.parameters["config"].string_param = config
        try:
            await self._stub.RepositoryModelLoad(request)
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, f"loading '{model}' on") from error

    async def unload(self, model: str) -> None:
        """Unload all versions; returns at once, calls in flight finish first."""
        request = service_pb2.RepositoryModelUnloadRequest(model_name=model)
        try:
            await self._stub.RepositoryModelUnload(request, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, f"unloading '{model}' on") from error

    async def settings(self, kind: str, model: str, changes: Settings) -> Settings:
        """Change `trace` settings (of a model, or of all when it is empty) or `logging` settings.

        Gives all that hold then. A trace setting's value is a list of texts or one text; a log
        setting's is a truth value, a number or a text. `TritonFailed` says what is wrong with one.
        """
        if kind == "logging":
            request = service_pb2.LogSettingsRequest()
            for name, value in changes.items():
                setting = request.settings[name]
                if value is not None:  # Triton refuses one without a value
                    setattr(setting, _LOG_FIELDS.get(type(value), "string_param"), value)
            answer = await self._quick(self._stub.LogSettings, request)
            return {
                name: getattr(value, value.WhichOneof("parameter_choice"))
                for name, value in sorted(answer.settings.items())
            }
        request = service_pb2.TraceSettingRequest(model_name=model)
        for name, value in changes.items():
            values = value if isinstance(value, list) else [] if value is None else [str(value)]
            request.settings[name].value.extend(values)
        answer = await self._quick(self._stub.TraceSetting, request)
        return {name: list(value.value) for name, value in sorted(answer.settings.items())}

    async def _quick(self, method: grpc.aio.UnaryUnaryMultiCallable, request: Any) -> Any:
        try:
            return await method(request, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, "the request to") from error

    def _translate(self, error: grpc.aio.AioRpcError, doing: str) -> TritonFailed | Unavailable:
        details = _for_people(error.details() or error.code().name)
        if _NOT_EXPLICIT in details:
            return NotExplicit(f"replica {self._replica.name} manages its models itself")
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return Unavailable(f"{doing} replica {self._replica.name} failed", why=details)
        return TritonFailed(details)


def _entry(message: int | bytes) -> IndexEntry | None:
    """One `ModelIndex` (name, version, state, reason are fields 1 to 4).

    None for a name that was never loaded: it has neither a version nor a state.
    """
    if not isinstance(message, bytes):
        return None
    texts = {
        number: value.decode("utf-8", "backslashreplace")
        for number, value in protobuf.fields(message)
        if isinstance(value, bytes)
    }
    version, state = texts.get(2, ""), texts.get(3, "")
    if version.isdigit():
        return IndexEntry(texts.get(1, ""), int(version), state, texts.get(4, ""))
    return IndexEntry(texts.get(1, ""), _ANY, state, texts.get(4, "")) if state else None


def _for_people(details: str) -> str:
    """Triton's words without the Python traceback that the stub hangs on to them."""
    return details.partition("\n\nAt:\n")[0].strip()
