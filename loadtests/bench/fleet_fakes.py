"""One process that answers as thousands of Tritons: a fake replica for each address 127.x.y.z.

Every address of 127.0.0.0/8 is this machine's. So two listeners, one for gRPC and one for metrics,
are as many replicas as addresses are called, all with the same ports, as the endpoints of one
Service have them. Each fake keeps in memory which versions it holds; a load takes the time that is
set. Nothing is computed: no tensor is looked at, and statistics never rise.

    python -m loadtests.bench.fleet_fakes --grpc 7001 --metrics 7002 --orders 7003

Orders are JSON lines on 127.0.0.1, each answered by one: `{"tell": 50}` counts, with how many
fakes hold 50 versions; `{"hold": [["m", 1]], "first": 1, "count": 200}` says what they hold;
`{"load_seconds": 0.2}`; `{"away": [3], "back": [4]}` kills fakes and starts them again.
"""

import argparse
import asyncio
import functools
import json
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import uvloop
from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2, service_pb2

from loadtests.bench.fleet_wire import Grpc, Refused

Held = frozenset[tuple[str, int]]  # names in Triton, and versions
NOT_FOUND, UNIMPLEMENTED, INVALID = 5, 12, 3  # gRPC's status codes
_COUNTERS = (
    "nv_inference_request_success",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
    "nv_inference_pending_request_count",
)
_FAILURES = ("REJECTED", "CANCELED", "BACKEND", "OTHER")


def name_of(number: int) -> str:
    """The name of a fake replica."""
    return f"fake-{number:05}"


def host_of(number: int) -> str:
    """The address at which it answers; numbers from 1 on."""
    return f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


@functools.lru_cache(maxsize=4096)
def index_of(held: Held) -> bytes:
    """`RepositoryIndexResponse` of who holds this."""
    answer = service_pb2.RepositoryIndexResponse()
    for name, version in sorted(held):
        answer.models.add(name=name, version=str(version), state="READY")
    return bytes(answer.SerializeToString())


@functools.lru_cache(maxsize=4096)
def statistics_of(held: Held) -> bytes:
    """`ModelStatisticsResponse`: as after a thousand calls."""
    answer = service_pb2.ModelStatisticsResponse()
    for name, version in sorted(held):
        row = answer.model_stats.add(
            name=name, version=str(version), inference_count=1000, execution_count=500
        )
        for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
            duration = getattr(row.inference_stats, part)
            duration.count, duration.ns = 1000, 5_000_000_000
    return bytes(answer.SerializeToString())


@functools.lru_cache(maxsize=4096)
def metrics_of(held: Held) -> bytes:
    """The Prometheus text, with as many lines as Triton writes for so many versions."""
    lines = ["# HELP nv_cpu_utilization CPU utilization rate [0.0 - 1.0]", "nv_cpu_utilization 0.5"]
    for name, version in sorted(held):
        label = f'model="{name}",version="{version}"'
        lines += [f"{counter}{{{label}}} 0" for counter in _COUNTERS]
        lines += [
            f'nv_inference_request_failure{{{label},reason="{reason}"}} 0' for reason in _FAILURES
        ]
    return "\n".join([*lines, ""]).encode()


class Fakes:
    """All replicas. `later(seconds, do)` does something after so many seconds."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._later = later
        self._held: dict[str, Held] = {}  # by address
        self._configs: dict[str, bytes] = {}  # as they were loaded last, by name in Triton
        self.load_seconds = 0.0
        self.calls: Counter[str] = Counter()  # by method
        self.away: set[str] = set()
        self.here: set[Grpc] = set()

    def held(self, address: str) -> Held:
        """What the replica at an address holds."""
        return self._held.get(address, frozenset())

    def whole(self, size: int) -> int:
        """How many replicas hold so many versions."""
        return sum(len(held) == size for held in self._held.values())

    def hold(self, addresses: Iterable[str], held: Held) -> None:
        """These hold this from now on."""
        self._held |= dict.fromkeys(addresses, held)

    def kill(self, addresses: Iterable[str]) -> None:
        """These lose what they hold, and their connections; new ones are cut off."""
        gone = set(addresses)
        self.away |= gone
        for address in gone:
            self._held.pop(address, None)
        for one in [one for one in self.here if one.address in gone]:
            one.abort()

    def answer(
        self, address: str, method: str, body: bytes, link: Grpc, stream: int
    ) -> bytes | None:
        """See `fleet_wire.Grpc`."""
        self.calls[method] += 1
        if method == "RepositoryIndex":
            return index_of(self.held(address))
        if method == "ModelStatistics":
            return statistics_of(self.held(address))
        if method == "RepositoryModelLoad":
            self._load(address, body, lambda: link.reply(stream, b""))
            return None
        if method == "RepositoryModelUnload":
            name = service_pb2.RepositoryModelUnloadRequest.FromString(body).model_name
            self._held[address] = frozenset(s for s in self.held(address) if s[0] != name)
            return b""
        if method == "ModelConfig":
            name = service_pb2.ModelConfigRequest.FromString(body).name
            return self._config(name)
        if method == "ModelMetadata":
            name = service_pb2.ModelMetadataRequest.FromString(body).name
            return self._metadata(address, name)
        return self._of_server(method)

    def _load(self, address: str, body: bytes, done: Callable[[], None]) -> None:
        request = service_pb2.RepositoryModelLoadRequest.FromString(body)
        name, versions = request.model_name, [1]
        if "config" in request.parameters:
            try:
                config = json.loads(request.parameters["config"].string_param)
                versions = config["version_policy"]["specific"]["versions"]
                message = json_format.ParseDict(config, model_config_pb2.ModelConfig())
            except (ValueError, KeyError, TypeError, json_format.ParseError) as error:
                raise Refused(INVALID, f"failed to load '{name}': {error!r}") from error
            answer = service_pb2.ModelConfigResponse(config=message)
            self._configs[name] = answer.SerializeToString()
        loaded = {(name, int(version)) for version in versions}

        def end() -> None:
            others = {slot for slot in self.held(address) if slot[0] != name}
            self._held[address] = frozenset(others | loaded)
            done()

        if self.load_seconds:
            self._later(self.load_seconds, end)
        else:
            end()

    def _config(self, name: str) -> bytes:
        known = self._configs.get(name)
        if known is None:
            message = model_config_pb2.ModelConfig(name=name, backend="fake", max_batch_size=8)
            known = service_pb2.ModelConfigResponse(config=message).SerializeToString()
        return known

    def _metadata(self, address: str, name: str) -> bytes:
        versions = sorted(version for one, version in self.held(address) if one == name)
        if not versions:
            raise Refused(NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        answer = service_pb2.ModelMetadataResponse(
            name=name, platform="fake", versions=list(map(str, versions))
        )
        return bytes(answer.SerializeToString())

    def _of_server(self, method: str) -> bytes:
        if method in ("ServerLive", "ServerReady", "ModelReady"):
            return b"\x08\x01"  # true, in each of the three messages
        if method in ("TraceSetting", "LogSettings"):
            return b""
        if method == "ServerMetadata":
            answer = service_pb2.ServerMetadataResponse(name="fake triton", version="0")
            return bytes(answer.SerializeToString())
        raise Refused(UNIMPLEMENTED, f"the fake Triton does not implement {method}")

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        """What the benchmark wants; see above."""
        if "hold" in order:
            held = frozenset((str(name), int(version)) for name, version in order["hold"])
            self.hold(map(host_of, range(order["first"], order["first"] + order["count"])), held)
        self.load_seconds = float(order.get("load_seconds", self.load_seconds))
        self.kill(map(host_of, order.get("away", ())))
        self.away -= set(map(host_of, order.get("back", ())))
        if order.get("forget"):
            self._held.clear()
        return {
            "whole": self.whole(order.get("tell", 0)),
            "calls": dict(self.calls),
            "connections": len(self.here),
        }


async def _metrics(
    fakes: Fakes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Any path is answered with the metrics; health, on the same port, so is a 200, too."""
    try:
        while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
            fakes.calls["metrics"] += 1
            body = metrics_of(fakes.held(writer.get_extra_info("sockname")[0]))
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\n"
            writer.write(head.encode() + b"\r\n" + body)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        pass
    finally:
        writer.close()


async def _orders(fakes: Fakes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(json.dumps(fakes.order(json.loads(line))).encode() + b"\n")
    writer.close()


async def serve(grpc: int, metrics: int, orders: int) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    fakes = Fakes(loop.call_later)

    class Connection(Grpc):
        """Cut off at once where the fake is away."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            if self.address in fakes.away:
                self.abort()

    async with asyncio.TaskGroup() as tasks:
        one = await loop.create_server(
            lambda: Connection(fakes.answer, fakes.here), "0.0.0.0", grpc, backlog=4096
        )
        two = await asyncio.start_server(
            functools.partial(_metrics, fakes), "0.0.0.0", metrics, backlog=4096
        )
        three = await asyncio.start_server(
            functools.partial(_orders, fakes), "127.0.0.1", orders, limit=1 << 24
        )
        for server in (one, two, three):
            tasks.create_task(server.serve_forever())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("grpc", "metrics", "orders"):
        parser.add_argument(f"--{name}", type=int, required=True, help="port")
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(serve(asked.grpc, asked.metrics, asked.orders))


if __name__ == "__main__":
    main()
