"""The options of load tests, which `load run` and `load scenario` share, and how they are read."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from serve.cli.panels import option
from serve.core.errors import Invalid

if TYPE_CHECKING:
    from serve.workbench.loadtest.encoded_bodies import CallWay

LOAD, CALLS, GENERATOR, REPORT = "Load", "Calls", "Load generator", "Report"

Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME[@V|:label]",
        help="Model to call, or one version of it, by number or label.",
    ),
]
Protocols = Annotated[
    list[str] | None,
    option(
        CALLS,
        "P[=WEIGHT],…",
        "Protocols, with an optional weight: http-binary, http-json, grpc, grpc-stream or "
        "tfserving, for example http-binary,grpc=2 (repeatable; default: http-binary).",
        "--protocol",
    ),
]
Inputs = Annotated[
    list[str] | None,
    option(
        CALLS,
        "[NAME=]@FILE|random",
        "Input: an image, .npy, .npz or .json file, or random values (repeatable; default: "
        "random).",
        "--input",
    ),
]
Batch = Annotated[
    int, option(CALLS, "N", "Rows per call (default: 1).", "--batch", min=0, show_default=False)
]
Expect = Annotated[
    str,
    option(
        CALLS,
        "[OUTPUT=]@FILE",
        "Expected class of each row (.npy or .npz), to check the top-1 class of responses.",
        "--expect",
    ),
]
RandomBodies = Annotated[
    int,
    option(
        CALLS,
        "N",
        "Number of distinct random requests to send in turn.",
        "--random-bodies",
        min=1,
        max=100_000,
    ),
]
SequenceLength = Annotated[
    int,
    option(
        CALLS,
        "LENGTH",
        "Calls per sequence, for stateful models (default: no sequences).",
        "--sequences",
        min=0,
        show_default=False,
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--slo",
        metavar="CONDITIONS",
        help="Objective, for example 'p99<20ms,errors<0.1%'. Exits with status 7 if it is missed.",
    ),
]
Connections = Annotated[
    int,
    option(
        GENERATOR,
        "N",
        "Maximum number of calls in flight per worker; further calls wait.",
        "--connections",
        min=1,
        max=60_000,
    ),
]
Timeout = Annotated[str, option(CALLS, "DURATION", "Time limit of a call.", "--timeout")]
WarmUp = Annotated[
    str, option(LOAD, "DURATION", "Duration of the warm-up, which is not recorded.", "--warm-up")
]
Seed = Annotated[
    int,
    option(LOAD, "N", "Seed for arrivals and random values.", "--seed", min=0, max=(1 << 32) - 1),
]
Workers = Annotated[
    int,
    option(
        GENERATOR,
        "N",
        "Load generator processes on this machine.",
        "--workers",
        "--processes",
        min=1,
        max=256,
    ),
]
Listen = Annotated[
    str,
    option(
        GENERATOR,
        "HOST:PORT",
        "Address to which `servegate load worker` processes on other machines connect.",
        "--listen",
    ),
]
ExpectWorkers = Annotated[
    int,
    option(
        GENERATOR,
        "N",
        "Number of remote workers to wait for before the load test starts.",
        "--expect-workers",
        min=0,
    ),
]
MetricsUrl = Annotated[
    str | None,
    option(
        "Connection",
        "URL",
        "URL of the metrics port (default: the gateway that servegate.toml in this folder "
        "configures).",
        "--metrics-url",
        envvar="SERVEGATE_METRICS_URL",
    ),
]
Folder = Annotated[
    Path, option(REPORT, "DIR", "Folder that contains the reports, one subfolder each.", "--out")
]
Name = Annotated[
    str, option(REPORT, "NAME", "Name of the report (default: time, model and kind).", "--name")
]
NoObserve = Annotated[
    bool, option(REPORT, "", "Do not include the gateway's metrics in the report.", "--no-observe")
]
NoCheck = Annotated[
    bool, option(CALLS, "", "Skip the test call that must succeed before the run.", "--no-check")
]
Share = Annotated[bool, option(REPORT, "", "Also upload the report to the gateway.", "--share")]

DEFAULT_FOLDER = Path("load-reports")


def ways_of(texts: Iterable[str], url: str, grpc_url: str) -> "tuple[CallWay, ...]":
    """The lanes that `--protocol` asks for, each once; `Invalid` names what is known."""
    from serve.workbench.loadtest.encoded_bodies import CallWay
    from serve.workbench.loadtest.plan import LaneProtocol

    weights: dict[LaneProtocol, float] = {}
    for word in (part.strip() for text in texts for part in text.split(",")):
        name, mark, share = word.partition("=")
        if name not in list(LaneProtocol):
            raise Invalid(
                f"--protocol cannot be '{word}'", why=f"expected one of {', '.join(LaneProtocol)}"
            )
        if LaneProtocol(name) in weights:
            raise Invalid(
                f"--protocol contains '{name}' twice", try_this=f"{name}=2 to set its weight"
            )
        weights[LaneProtocol(name)] = _weight(word, share) if mark else 1.0
    ways = []
    for protocol, weight in (weights or {LaneProtocol.HTTP_BINARY: 1.0}).items():
        is_grpc = protocol in (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM)
        address, tls, prefix = endpoint(grpc_url if is_grpc else url)
        ways.append(CallWay(protocol, address, weight, tls, "" if is_grpc else prefix))
    return tuple(ways)


def endpoint(url: str) -> tuple[str, bool, str]:
    """host:port, whether it speaks TLS, and the path before every path, often none."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        tls = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if tls else 80)
    except ValueError as error:
        raise Invalid(f"'{url}' is not a valid URL", why=str(error)) from error
    if not host or parts.scheme not in ("http", "https", "grpc"):
        raise Invalid(f"'{url}' is not a valid URL", try_this="http://HOST:PORT")
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}", tls, parts.path.rstrip("/")


def _weight(word: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise Invalid(f"--protocol cannot be '{word}'", why="expected a weight above 0")
    return weight
