"""nginx, haproxy and Envoy, each with one worker in front of the same two replicas."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.bench.filling import fill, nginx_user
from loadtests.bench.machine import Cores
from loadtests.bench.start import ROOT, free_ports
from loadtests.bench.started import Programs, listening
from loadtests.bench.targets import Target
from loadtests.bench.upstreams import Upstreams

EXTENSIONS = "type.googleapis.com/envoy.extensions"
LONG = "600s"


def start_peers(
    programs: Programs, upstreams: Upstreams, *, cores: Cores, folder: Path
) -> tuple[Target, ...]:
    """Start those that are installed; the others are left out."""
    peers = (
        ("nginx", shutil.which("nginx"), nginx),
        ("haproxy", shutil.which("haproxy"), haproxy),
        ("envoy", envoy_binary(), envoy),
    )
    targets = []
    for name, binary, command in peers:
        if binary is None:
            continue
        own = folder / name
        own.mkdir()
        http, grpc = free_ports(2)
        argv = (*cores.proxy, binary, *command(own, http, grpc, upstreams))
        process = programs.start(name, argv)
        programs.wait(name, process, partial(listening, http, grpc))
        targets.append(
            Target(name, f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}", process.pid)
        )
    return tuple(targets)


def envoy_binary() -> str | None:
    """The one that `scripts/bench-deps.sh` brings, `$ENVOY`, or the one on PATH."""
    brought = ROOT / ".venv-bench" / "bin" / "envoy"
    named = os.environ.get("ENVOY")
    return named or (str(brought) if brought.exists() else shutil.which("envoy"))


def nginx(folder: Path, http: int, grpc: int, upstreams: Upstreams) -> tuple[str, ...]:
    """Write its configuration; the arguments that it is started with."""
    path = folder / "nginx.conf"
    page = fill(
        "nginx.conf",
        user=nginx_user(),
        folder=folder,
        http_port=http,
        grpc_port=grpc,
        http_servers=" ".join(f"server 127.0.0.1:{port};" for port in upstreams.http),
        grpc_servers=" ".join(f"server 127.0.0.1:{port};" for port in upstreams.grpc),
    )
    path.write_text(page)
    return ("-c", str(path))


def haproxy(folder: Path, http: int, grpc: int, upstreams: Upstreams) -> tuple[str, ...]:
    """Write its configuration; the arguments that it is started with."""
    path = folder / "haproxy.cfg"

    def servers(ports: tuple[int, ...], more: str) -> str:
        lines = [f"server r{port} 127.0.0.1:{port} {more}pool-max-conn 256" for port in ports]
        return "\n    ".join(lines)

    page = fill(
        "haproxy.cfg",
        http_port=http,
        grpc_port=grpc,
        http_servers=servers(upstreams.http, ""),
        grpc_servers=servers(upstreams.grpc, "proto h2 "),
    )
    path.write_text(page)
    return ("-f", str(path))


def envoy(folder: Path, http: int, grpc: int, upstreams: Upstreams) -> tuple[str, ...]:
    """Write its configuration; the arguments that it is started with."""
    path = folder / "envoy.json"
    page = {
        "static_resources": {
            "listeners": [_listener("http", http), _listener("grpc", grpc)],
            "clusters": [_cluster("http", upstreams.http), _cluster("grpc", upstreams.grpc)],
        }
    }
    path.write_text(json.dumps(page, indent=1))
    return ("-c", str(path), "--concurrency", "1", "--disable-hot-restart", "-l", "warn")


def _typed(name: str, **values: Any) -> dict[str, Any]:
    return {"@type": f"{EXTENSIONS}.{name}", **values}


def _listener(protocol: str, port: int) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": protocol, "timeout": LONG}}
    router = _typed("filters.http.router.v3.Router")
    manager = _typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=protocol,
        codec_type="HTTP2" if protocol == "grpc" else "HTTP1",
        stream_idle_timeout=LONG,
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=[{"name": "envoy.filters.http.router", "typed_config": router}],
    )
    network = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    }
    return {
        "name": protocol,
        "address": _address(port),
        "filter_chains": [{"filters": [network]}],
    }


def _cluster(protocol: str, ports: tuple[int, ...]) -> dict[str, Any]:
    endpoints = [{"endpoint": {"address": _address(port)}} for port in ports]
    cluster: dict[str, Any] = {
        "name": protocol,
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": protocol, "endpoints": [{"lb_endpoints": endpoints}]},
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": 4096, "max_pending_requests": 4096, "max_requests": 4096}
            ]
        },
    }
    if protocol == "grpc":
        http2: dict[str, Any] = {"explicit_http_config": {"http2_protocol_options": {}}}
        options = _typed("upstreams.http.v3.HttpProtocolOptions", **http2)
        name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        cluster["typed_extension_protocol_options"] = {name: options}
    return cluster


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
