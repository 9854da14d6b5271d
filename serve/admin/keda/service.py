"""The service `externalscaler.ExternalScaler` for a server of `grpc.aio`, and reflection of it.

A ScaledObject names its pool under `pool` in the metadata of its trigger. KEDA sends no metadata of
gRPC, so it cannot show a key as other clients do (`authorization: Bearer KEY`): what it can send is
the trigger's metadata, and in there `key`, or `keyFromEnv`, whose value KEDA reads from the
environment of what it scales.

The messages of KEDA's external scaler, described in a table.

They stand in a pool of their own, as those of TensorFlow Serving do, and are made when they are
needed. Source: `pkg/scalers/externalscaler/externalscaler.proto` of https://github.com/kedacore/keda
(read after 2.20.1, when `StreamMetricSpec` had been added). KEDA up to 2.16 reads whole numbers
from `targetSize` and `metricValue`; both are set, next to the fields that replace them.
"""

import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

import grpc

from serve.admin.keda.scaler import METRIC, TARGET, ExternalScaler
from serve.core.errors import Invalid, ServegateError
from serve.wire.reflection import METHODS as REFLECTED
from serve.wire.reflection import Reflection
from serve.wire.status import grpc_error

# --- the messages of KEDA's external scaler, described in a table ---------------------------------


SERVICE = "externalscaler.ExternalScaler"
STREAMS = frozenset({"StreamIsActive", "StreamMetricSpec"})
METHODS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "IsActive": ("ScaledObjectRef", "IsActiveResponse"),
        "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse"),
        "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse"),
        "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse"),
        "StreamMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse"),
    }
)
_PACKAGE = "externalscaler"
# message → number: "name kind"; kinds are scalars, `repeated` of a message, a message, and `map`
# from strings to strings.
_TABLE: Mapping[str, Mapping[int, str]] = {
    "ScaledObjectRef": {1: "name string", 2: "namespace string", 3: "scalerMetadata map"},
    "IsActiveResponse": {1: "result bool"},
    "GetMetricSpecResponse": {1: "metricSpecs repeated MetricSpec"},
    "MetricSpec": {1: "metricName string", 2: "targetSize int64", 3: "targetSizeFloat double"},
    "GetMetricsRequest": {1: "scaledObjectRef ScaledObjectRef", 2: "metricName string"},
    "GetMetricsResponse": {1: "metricValues repeated MetricValue"},
    "MetricValue": {1: "metricName string", 2: "metricValue int64", 3: "metricValueFloat double"},
}


@functools.cache
def classes() -> Mapping[str, Any]:
    """The message classes by name, made once."""
    from google.protobuf import descriptor_pool, message_factory

    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return MappingProxyType(
        {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
            for name in _TABLE
        }
    )


def descriptors() -> bytes:
    """All of it as a serialised `FileDescriptorSet`, for server reflection."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet(file=[_file()]).SerializeToString(deterministic=True)


def _file() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="externalscaler.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for number, words in fields.items():
            _add_field(message, number, *words.split())
    service = file.service.add(name=SERVICE.removeprefix(f"{_PACKAGE}."))
    for name, (taken, given) in METHODS.items():
        service.method.add(
            name=name,
            input_type=f".{_PACKAGE}.{taken}",
            output_type=f".{_PACKAGE}.{given}",
            server_streaming=name in STREAMS,
        )
    return file


def _add_field(message: Any, number: int, name: str, *kind: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    what = kind[-1]
    if what != kind[0] or what == "map":
        field.label = Field.LABEL_REPEATED
    if what == "map":
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "string")
        _add_field(entry, 2, "value", "string")
        what = f"{message.name}.{entry.name}"
    if what[0].isupper():
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{what}"
    else:
        field.type = Field.Type.Value(f"TYPE_{what.upper()}")


# --- service --------------------------------------------------------------------------------------


_log = logging.getLogger("servegate.keda")
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_KEYS = ("key", "keyFromEnv")

Admit = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class KedaCall:
    """One call: the pool, the metric by its name, empty for any, and an Authorization value."""

    pool: str
    metric: str
    credential: bytes = field(repr=False)

    @classmethod
    def of(cls, request: Any, context: Any) -> "KedaCall":
        """Read a `ScaledObjectRef` or a `GetMetricsRequest`."""
        metric = getattr(request, "metricName", "")
        given = dict(getattr(request, "scaledObjectRef", request).scalerMetadata)
        keys = [given[name] for name in _KEYS if given.get(name)]
        credential = f"Bearer {keys[0]}" if keys else ""
        shown = dict(context.invocation_metadata() or ()).get("authorization", credential)
        return cls(given.get("pool", ""), metric, shown.encode())


class KedaService:
    """The methods. `admit` raises for a credential that may not ask."""

    def __init__(self, scaler: ExternalScaler, *, admit: Admit) -> None:
        self._scaler = scaler
        self._admit = admit
        self._messages = classes()

    def __repr__(self) -> str:
        return f"<KedaService {self._scaler!r}>"

    def handlers(self) -> tuple[Any, ...]:
        """For `add_generic_rpc_handlers`."""
        answers = {
            "IsActive": self._unary(self._is_active),
            "StreamIsActive": self._stream(self._wakes),
            "GetMetricSpec": self._unary(self._spec),
            "GetMetrics": self._unary(self._metrics),
            "StreamMetricSpec": self._stream(self._specs),
        }
        methods = {}
        for name, (taken, given) in METHODS.items():
            make = grpc.unary_unary_rpc_method_handler
            if name in STREAMS:
                make = grpc.unary_stream_rpc_method_handler
            methods[name] = make(
                answers[name],
                request_deserializer=self._messages[taken].FromString,
                response_serializer=self._messages[given].SerializeToString,
            )
        return (grpc.method_handlers_generic_handler(SERVICE, methods), *reflection())

    def _unary(self, answer: Callable[[KedaCall], Any]) -> Any:
        async def answered(request: Any, context: Any) -> Any:
            try:
                return answer(self._admitted(request, context))
            except Exception as error:
                await _refuse(context, error)

        return answered

    def _stream(self, answers: Callable[[KedaCall], AsyncGenerator[Any, None]]) -> Any:
        async def answered(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                asked = self._admitted(request, context)
                await context.send_initial_metadata(())  # proxies wait for it; messages take time
                async for message in answers(asked):
                    yield message
            except Exception as error:
                await _refuse(context, error)

        return answered

    def _admitted(self, request: Any, context: Any) -> KedaCall:
        asked = KedaCall.of(request, context)
        self._admit(asked.credential)
        if not asked.pool:
            raise Invalid(
                "the trigger of the ScaledObject names no pool",
                try_this="add 'pool: default' to the metadata of the trigger",
            )
        return asked

    def _is_active(self, asked: KedaCall) -> Any:
        return self._messages["IsActiveResponse"](result=self._scaler.desired(asked.pool) > 0)

    async def _wakes(self, asked: KedaCall) -> AsyncGenerator[Any, None]:
        async for _ in self._scaler.wakes(asked.pool):
            yield self._messages["IsActiveResponse"](result=True)

    def _spec(self, asked: KedaCall) -> Any:
        spec = {"metricName": METRIC, "targetSize": TARGET, "targetSizeFloat": float(TARGET)}
        return self._messages["GetMetricSpecResponse"](metricSpecs=[spec])

    async def _specs(self, asked: KedaCall) -> AsyncGenerator[Any, None]:
        """Once: it never changes. KEDA would ask anew, and in vain, if the stream ended."""
        yield self._spec(asked)
        await self._scaler.closed()

    def _metrics(self, asked: KedaCall) -> Any:
        desired = self._scaler.desired(asked.pool)
        value = {"metricValue": desired, "metricValueFloat": float(desired)}
        name = asked.metric or METRIC
        return self._messages["GetMetricsResponse"](metricValues=[{"metricName": name, **value}])


def reflection() -> tuple[Any, ...]:
    """What the service is, for `grpcurl` and its kind; public anyway, so it needs no key."""
    known = Reflection(descriptors())

    async def answered(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in messages:
                yield known.answer(message)
        except Exception as error:
            await _refuse(context, error)

    handlers = []
    for path in REFLECTED:
        _, service, method = path.split("/")
        found = {method: grpc.stream_stream_rpc_method_handler(answered)}
        handlers.append(grpc.method_handlers_generic_handler(service, found))
    return tuple(handlers)


async def _refuse(context: Any, error: Exception) -> NoReturn:
    """End the call with the status of an error; one that nobody raised on purpose is logged."""
    if not isinstance(error, ServegateError):
        _log.error("a call from KEDA failed", exc_info=error)
        error = ServegateError("the control plane failed", why="see its log")
    told = grpc_error(error)
    trailing = tuple((name.decode(), value.decode()) for name, value in told.headers)
    await context.abort(_STATUS[told.status], told.message, trailing)
    raise error  # which abort has done
