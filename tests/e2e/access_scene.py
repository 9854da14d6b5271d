"""A real gateway with keys: who shows which, and every verb of every transport as one function."""

import http.client
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import harness
from tritonclient.grpc import service_pb2

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()
SERVED, UNAUTHENTICATED, FORBIDDEN, UNKNOWN = "served", "unauthenticated", "forbidden", "unknown"
# Of equal length, so that nothing but the letters of a name may differ in two answers.
OPEN, SECRET, ABSENT = "opened", "secret", "absent"
# The last says whether the refusal came before the body did, which is a matter of chance.
_VARYING = {"servegate-request-id", "date", "connection"}


def repository(folder: Path) -> Path:
    """The demo model twice, under names that keys tell apart."""
    source = harness.ROOT / "model_repo" / "digits"
    for name in (OPEN, SECRET):
        shutil.copytree(source, folder / name)
        config = folder / name / "config.pbtxt"
        config.write_text(config.read_text().replace('"digits"', f'"{name}"'))
    return folder


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, whatever the transport: `status` is a number, `rest` all that may give away."""

    status: int
    rest: tuple[tuple[str, str], ...]
    body: bytes

    def named(self, name: str, other: str) -> "Answer":
        """The same answer if it had been about another model."""
        rest = tuple((key, value.replace(name, other)) for key, value in self.rest)
        return Answer(self.status, rest, self.body.replace(name.encode(), other.encode()))

    @property
    def outcome(self) -> str:
        """What it comes to; `served` is everything that is no refusal of ours."""
        words = {401: UNAUTHENTICATED, 16: UNAUTHENTICATED, 7: FORBIDDEN, 403: FORBIDDEN}
        return words.get(self.status, SERVED)


class Caller:
    """Somebody who shows a key, or none, on fresh connections."""

    def __init__(self, up: harness.Up, key: str) -> None:
        self._up = up
        self._shown = {"authorization": f"Bearer {key}"} if key else {}

    def http(self, method: str, path: str, body: bytes = b"") -> Answer:
        """One HTTP exchange."""
        connection = http.client.HTTPConnection(self._up.http, timeout=30)
        try:
            connection.request(method, path, body or None, self._shown)
            answer = connection.getresponse()
            kept = sorted(
                (name.lower(), value)
                for name, value in answer.getheaders()
                if name.lower() not in _VARYING
            )
            return Answer(answer.status, tuple(kept), answer.read())
        finally:
            connection.close()

    def grpc(self, method: str, message: Any) -> Answer:
        """One gRPC call, a stream of one message included; the answers' bytes in their order."""
        with grpc.insecure_channel(
            self._up.grpc, options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            metadata = tuple(self._shown.items())
            data = message.SerializeToString()
            if method.endswith("ModelStreamInfer"):
                call = channel.stream_stream(method)(iter([data]), timeout=30, metadata=metadata)
            else:
                call = channel.unary_stream(method)(data, timeout=30, metadata=metadata)
            try:
                body = b"".join(call)
            except grpc.RpcError:
                body = b""
            trailers = sorted(
                (name, str(value))
                for name, value in call.trailing_metadata()
                if name not in _VARYING
            )
            return Answer(call.code().value[0], (("details", call.details()), *trailers), body)


Verb = Callable[[Caller, str], Answer]
_KSERVE = "/inference.GRPCInferenceService/"


def _http(method: str, path: str, body: bytes = b"") -> Verb:
    return lambda caller, model: caller.http(method, path.format(m=model), body)


def _grpc(name: str, make: Callable[[str], Any]) -> Verb:
    method = name if name.startswith("/") else _KSERVE + name
    return lambda caller, model: caller.grpc(method, make(model))


def infer_message(model: str) -> Any:
    """A prediction of the demo model."""
    given = json.loads(SEVEN)["inputs"][0]
    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP32", shape=given["shape"])
    tensor.contents.fp32_contents.extend(given["data"])
    return request


OF_A_MODEL: dict[str, Verb] = {
    "http infer": _http("POST", "/v2/models/{m}/infer", SEVEN),
    "http infer of a version": _http("POST", "/v2/models/{m}/versions/1/infer", SEVEN),
    "http infer of a label": _http("POST", "/v2/models/{m}/versions/stable/infer", SEVEN),
    "http generate": _http("POST", "/v2/models/{m}/generate", b'{"x": 1}'),
    "http generate_stream": _http("POST", "/v2/models/{m}/generate_stream", b'{"x": 1}'),
    "http metadata": _http("GET", "/v2/models/{m}"),
    "http metadata of a version": _http("GET", "/v2/models/{m}/versions/1"),
    "http config": _http("GET", "/v2/models/{m}/config"),
    "http stats": _http("GET", "/v2/models/{m}/stats"),
    "http stats of a version": _http("GET", "/v2/models/{m}/versions/1/stats"),
    "http ready": _http("GET", "/v2/models/{m}/ready"),
    "http ready of a version": _http("GET", "/v2/models/{m}/versions/1/ready"),
    "tfserving predict": _http("POST", "/v1/models/{m}:predict", b'{"instances": []}'),
    "tfserving status": _http("GET", "/v1/models/{m}"),
    "tfserving metadata": _http("GET", "/v1/models/{m}/metadata"),
    "grpc infer": _grpc("ModelInfer", infer_message),
    "grpc stream": _grpc("ModelStreamInfer", infer_message),
    "grpc metadata": _grpc(
        "ModelMetadata", lambda name: service_pb2.ModelMetadataRequest(name=name)
    ),
    "grpc config": _grpc("ModelConfig", lambda name: service_pb2.ModelConfigRequest(name=name)),
    "grpc stats": _grpc(
        "ModelStatistics", lambda name: service_pb2.ModelStatisticsRequest(name=name)
    ),
    "grpc ready": _grpc("ModelReady", lambda name: service_pb2.ModelReadyRequest(name=name)),
}
OF_THE_SERVER: dict[str, Verb] = {
    "http server metadata": _http("GET", "/v2"),
    "http index": _http("POST", "/v2/repository/index"),
    "http all stats": _http("GET", "/v2/models/stats"),
    "grpc server metadata": _grpc("ServerMetadata", lambda _: service_pb2.ServerMetadataRequest()),
    "grpc index": _grpc("RepositoryIndex", lambda _: service_pb2.RepositoryIndexRequest()),
    "grpc all stats": _grpc("ModelStatistics", lambda _: service_pb2.ModelStatisticsRequest()),
}
MANAGEMENT: dict[str, Verb] = {
    "http trace settings": _http("GET", "/v2/trace/setting"),
    "http log settings": _http("GET", "/v2/logging"),
    "grpc trace settings": _grpc("TraceSetting", lambda _: service_pb2.TraceSettingRequest()),
    "grpc log settings": _grpc("LogSettings", lambda _: service_pb2.LogSettingsRequest()),
}
HEALTH: dict[str, Verb] = {
    "http live": _http("GET", "/v2/health/live"),
    "http ready": _http("GET", "/v2/health/ready"),
    "grpc live": _grpc("ServerLive", lambda _: service_pb2.ServerLiveRequest()),
    "grpc ready": _grpc("ServerReady", lambda _: service_pb2.ServerReadyRequest()),
    "grpc health": _grpc("/grpc.health.v1.Health/Check", lambda _: service_pb2.ServerLiveRequest()),
}
