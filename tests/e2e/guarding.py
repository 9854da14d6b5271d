"""A real gateway with keys and TLS, its callers, and the verbs of each transport as functions."""

import http.client
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import harness
import repositories
from certificates import Authority
from tritonclient.grpc import service_pb2

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()
SERVED, UNAUTHENTICATED, FORBIDDEN = "served", "unauthenticated", "forbidden"
# Of equal length, so that nothing but the letters of a name may differ in two answers.
OPEN, SECRET, ABSENT = "opened", "secret", "absent"
WRONG = "sg_0123456789_" + "x" * 43
# The last says whether the refusal came before the body did, which is a matter of chance.
_VARYING = {"servegate-request-id", "date", "connection"}


def start(folder: Path) -> Any:
    """One Triton with the demo model and two copies of it, which keys distinguish; two workers."""
    models = folder / "models"
    for name in ("digits", OPEN, SECRET):
        repositories.digits(models, name)
    chain, key = Authority(folder).issue("one")
    env = {"TLS_CERT": chain, "TLS_KEY": key, "ACCESS_LOG": folder / "access.log"}
    env |= {"ACCESS_LOG_SHARE": 1}
    flags = ("--workers", "2", "--model-repo", str(models), "--allow-management")
    named = {f"SERVEGATE_{name}": str(value) for name, value in env.items()}
    return harness.up(folder / "state", *flags, env=named)


class Guarded:
    def __init__(self, up: harness.RunningGateway) -> None:
        self.up = up
        self.authority = up.state.parent / "ca.pem"
        self.context = ssl.create_default_context(cafile=str(self.authority))
        self.environment = {
            "SERVEGATE_CACERT": str(self.authority),
            "SERVEGATE_URL": f"https://localhost:{up.http_port}",
            "SERVEGATE_GRPC_URL": f"https://localhost:{up.grpc_port}",
            "SERVEGATE_ADMIN_URL": f"https://localhost:{up.admin_port}",
        }
        for model in (OPEN, SECRET):
            path = f"/api/models/{model}/labels/stable"
            assert self.admin("PUT", path, {"version": 1})[0] == 200
        revoked = self.make("admin", "*")
        self.revoke(revoked["id"])
        self.keys = {
            "none": "",
            "wrong": WRONG,
            "expired": self.make("predictor", "*", expires_in=0.001)["key"],
            "revoked": revoked["key"],
            "limited": self.make("predictor", OPEN)["key"],
            "predictor": self.make("predictor", "*")["key"],
            "admin": self.make("admin", "*")["key"],
        }

    def caller(self, name: str) -> "Caller":
        return Caller(self, self.keys[name])

    def request(self, method: str, path: str, body: Any = None, *, key: str) -> tuple[int, Any]:
        url = f"https://localhost:{self.up.admin_port}{path}"
        shown = {"authorization": f"Bearer {key}"}
        return harness.request(url, method, body, context=self.context, **shown)

    def admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The admin API, by the secret that only this user can read."""
        return self.request(method, path, body, key=(self.up.state / "secret").read_text())

    def make(self, role: str, *models: str, **more: float) -> Any:
        body = {"role": role, "models": list(models), **more}
        status, made = self.admin("POST", "/api/keys?wait=30", body)
        assert status == 201 and made["in_force"], made
        return made

    def revoke(self, identity: str) -> Any:
        status, answer = self.admin("DELETE", f"/api/keys/{identity}?wait=30")
        assert status == 200 and answer["in_force"], answer
        return answer


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
    def __init__(self, guarded: Guarded, key: str) -> None:
        self._up, self._context = guarded.up, guarded.context
        self._trusted = grpc.ssl_channel_credentials(guarded.authority.read_bytes())
        self._shown = {"authorization": f"Bearer {key}"} if key else {}

    def http(self, method: str, path: str, body: bytes = b"") -> Answer:
        port, context = self._up.http_port, self._context
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
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
        address, alone = f"localhost:{self._up.grpc_port}", ("grpc.use_local_subchannel_pool", 1)
        with grpc.secure_channel(address, self._trusted, (alone,)) as channel:
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
    given = json.loads(SEVEN)["inputs"][0]
    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP32", shape=given["shape"])
    tensor.contents.fp32_contents.extend(given["data"])
    return request


# One or two verbs of each handler; the listeners' own tests have them all.
OF_A_MODEL: dict[str, Verb] = {
    "http infer": _http("POST", "/v2/models/{m}/infer", SEVEN),
    "http infer of a label": _http("POST", "/v2/models/{m}/versions/stable/infer", SEVEN),
    "http generate_stream": _http("POST", "/v2/models/{m}/generate_stream", b'{"x": 1}'),
    "http stats": _http("GET", "/v2/models/{m}/stats"),
    "http ready": _http("GET", "/v2/models/{m}/ready"),
    "tfserving predict": _http("POST", "/v1/models/{m}:predict", b'{"instances": []}'),
    "tfserving metadata": _http("GET", "/v1/models/{m}/metadata"),
    "grpc infer": _grpc("ModelInfer", infer_message),
    "grpc stream": _grpc("ModelStreamInfer", infer_message),
    "grpc config": _grpc("ModelConfig", lambda name: service_pb2.ModelConfigRequest(name=name)),
    "grpc ready": _grpc("ModelReady", lambda name: service_pb2.ModelReadyRequest(name=name)),
}
OF_THE_SERVER: dict[str, Verb] = {
    "http index": _http("POST", "/v2/repository/index"),
    "grpc all stats": _grpc("ModelStatistics", lambda _: service_pb2.ModelStatisticsRequest()),
}
MANAGEMENT: dict[str, Verb] = {
    "http log settings": _http("GET", "/v2/logging"),
    "grpc trace settings": _grpc("TraceSetting", lambda _: service_pb2.TraceSettingRequest()),
}
HEALTH: dict[str, Verb] = {
    "http ready": _http("GET", "/v2/health/ready"),
    "grpc live": _grpc("ServerLive", lambda _: service_pb2.ServerLiveRequest()),
    "grpc health": _grpc("/grpc.health.v1.Health/Check", lambda _: service_pb2.ServerLiveRequest()),
}
