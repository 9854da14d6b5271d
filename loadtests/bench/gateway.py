"""The gateway as it is measured: one worker with its duties on, the control plane apart.

Duties: two replicas, a 90/10 split of `null` over two versions, a concurrency limit, metrics and a
deadline. There are no API keys and no access log in the product yet, so these are not on.
"""

import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from loadtests.bench.keys import CREDENTIAL, write_keys
from loadtests.bench.machine import Cores
from loadtests.bench.start import BIN, free_ports
from loadtests.bench.started import Programs
from loadtests.bench.targets import Target
from loadtests.bench.upstreams import REPLICAS, VERSIONS, Upstreams

SHARES = {1: 90, 2: 10}
# Of the two planes of a benchmark, which listen on loopback only.
SECRET = "shared-by-the-two-planes-of-a-benchmark"
DUTIES = (
    "two replicas",
    "90/10 split over two versions",
    "100 API keys, one in each call",
    "concurrency limit",
    "metrics",
    "request id",
    "deadline",
    "access log of 1 %",
)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running one."""

    target: Target
    admin: str  # URL
    metrics: str  # URL

    def counts(self) -> dict[int, int]:
        """Answered calls of `null` so far, by version, over both protocols."""
        found = dict.fromkeys(VERSIONS, 0)
        for family in text_string_to_metric_families(_text(self.metrics)):
            for sample in family.samples:
                if sample.name == "servegate_calls_total" and sample.labels["model"] == "null":
                    found[int(sample.labels["version"])] += int(sample.value)
        return found


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a gateway listens."""

    http: int
    grpc: int
    metrics: int
    admin: int


def start_gateway(
    programs: Programs,
    upstreams: Upstreams,
    *,
    cores: Cores,
    folder: Path,
    workers: int = 1,
    name: str = "servegate",
    checkout: Path | None = None,
) -> Gateway:
    """Start both planes, set the split, and wait until it is in force.

    The code is this checkout's, or that of another `checkout`, run with the same packages.
    """
    state = folder / f"{name}-{workers}"
    ports = Ports(*free_ports(4))
    control, proxy = (f"{name}-{kind}-{workers}" for kind in ("control", "proxy"))
    write_keys(state / "control")
    argv = (*cores.upstream, *_control(ports, state / "control", upstreams))
    process = programs.start(control, argv, environment(checkout))
    admin = f"http://127.0.0.1:{ports.admin}"
    programs.wait(control, process, lambda: _holds_versions(admin))
    argv = (*cores.proxy, *_proxy(ports, state / "proxy", admin, workers))
    process = programs.start(proxy, argv, environment(checkout))
    http, grpc = f"http://127.0.0.1:{ports.http}", f"http://127.0.0.1:{ports.grpc}"
    programs.wait(proxy, process, lambda: _is_ready(http))
    set_route(admin, "null", {"split": SHARES})
    metrics = f"http://127.0.0.1:{ports.metrics}/metrics"
    return Gateway(Target(name, http, grpc, process.pid), admin, metrics)


def set_route(admin: str, model: str, route: Any) -> None:
    """Set a route through the admin API at this URL; it is in force when this returns."""
    answer = _json(f"{admin}/api/routes/{model}", route)
    if not answer["in_force"]:
        raise RuntimeError(f"the route is not in force: {answer}")


def environment(checkout: Path | None = None) -> dict[str, str]:
    """Nothing of the caller's own settings; the models are what the Tritons hold."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SERVEGATE_")}
    code = {} if checkout is None else {"PYTHONPATH": str(checkout)}
    return {**inherited, "SERVEGATE_MODEL_REPO": "", "SERVEGATE_SECRET": SECRET, **code}


def _control(ports: Ports, state: Path, upstreams: Upstreams) -> tuple[str, ...]:
    tritons = [word for address in upstreams.addresses for word in ("--triton", address)]
    return (
        *(sys.executable, str(BIN / "servegate"), "control", "--state", str(state)),
        *("--admin-port", str(ports.admin), "--log-level", "warning", *tritons),
    )


def _proxy(ports: Ports, state: Path, admin: str, workers: int) -> tuple[str, ...]:
    return (
        *(sys.executable, str(BIN / "servegate"), "proxy", "--state", str(state)),
        *("--control", admin, "--workers", str(workers), "--log-level", "warning"),
        *("--http-port", str(ports.http), "--grpc-port", str(ports.grpc)),
        *("--metrics-port", str(ports.metrics)),
        *("--access-log", str(state / "access.log"), "--access-log-share", "0.01"),
    )


def _holds_versions(admin: str) -> bool:
    """Whether the control plane has published every version of `null` on every replica."""
    with contextlib.suppress(OSError, KeyError):
        targets = _json(f"{admin}/api/snapshot")["snapshot"]["models"]["null"]["targets"]
        held = [len(target["replicas"]) for target in targets.values()]
        return held == [REPLICAS] * len(VERSIONS)
    return False


def _is_ready(http: str) -> bool:
    with contextlib.suppress(OSError):
        _text(f"{http}/v2/models/null/ready")
        return True
    return False


def _json(url: str, body: Any = None) -> Any:
    fields = {"content-type": "application/json", "authorization": f"Bearer {SECRET}"}
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, fields, method="GET" if data is None else "PUT")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


def _text(url: str) -> str:
    asked = urllib.request.Request(url, headers=dict((CREDENTIAL,)))
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return str(answer.read().decode())
