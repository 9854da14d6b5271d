"""The options of load tests, which `load run` and `load scenario` share, and how they are read."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from serve.core.errors import Invalid

if TYPE_CHECKING:
    from serve.load.preparing import Way

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
    typer.Option(
        "--protocol",
        metavar="P[=WEIGHT],…",
        rich_help_panel=CALLS,
        help="Protocols, with an optional weight: http-binary, http-json, grpc, grpc-stream or "
        "tfserving, for example http-binary,grpc=2 (repeatable; default: http-binary).",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="[NAME=]@FILE|random",
        rich_help_panel=CALLS,
        help="Input: an image, .npy, .npz or .json file, or random values (repeatable; default: "
        "random).",
    ),
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch",
        min=0,
        metavar="N",
        rich_help_panel=CALLS,
        help="Rows per call (default: 1).",
        show_default=False,
    ),
]
Expect = Annotated[
    str,
    typer.Option(
        "--expect",
        metavar="[OUTPUT=]@FILE",
        rich_help_panel=CALLS,
        help="Expected class of each row (.npy or .npz), to check the top-1 class of responses.",
    ),
]
RandomBodies = Annotated[
    int,
    typer.Option(
        "--random-bodies",
        min=1,
        max=100_000,
        metavar="N",
        rich_help_panel=CALLS,
        help="Number of different random requests.",
    ),
]
SequenceLength = Annotated[
    int,
    typer.Option(
        "--sequences",
        min=0,
        metavar="LENGTH",
        rich_help_panel=CALLS,
        help="Calls per sequence, for stateful models (default: no sequences).",
        show_default=False,
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--slo",
        metavar="CONDITIONS",
        help="Objective, for example 'p99<20ms,errors<0.1%'. Exit status 7 if it is missed.",
    ),
]
Connections = Annotated[
    int,
    typer.Option(
        "--connections",
        min=1,
        max=60_000,
        metavar="N",
        rich_help_panel=GENERATOR,
        help="Limit of calls in flight per worker; further calls wait.",
    ),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="DURATION", rich_help_panel=CALLS, help="Time limit of a call."
    ),
]
WarmUp = Annotated[
    str,
    typer.Option(
        "--warm-up",
        metavar="DURATION",
        rich_help_panel=LOAD,
        help="Duration of the warm-up, which is not recorded.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        max=(1 << 32) - 1,
        metavar="N",
        rich_help_panel=LOAD,
        help="Seed of arrivals and random values.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        "--processes",
        min=1,
        max=256,
        metavar="N",
        rich_help_panel=GENERATOR,
        help="Load generator processes on this machine.",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        rich_help_panel=GENERATOR,
        help="Address on which `servegate load worker` processes of other machines connect.",
    ),
]
ExpectWorkers = Annotated[
    int,
    typer.Option(
        "--expect-workers",
        min=0,
        metavar="N",
        rich_help_panel=GENERATOR,
        help="Number of these workers to wait for.",
    ),
]
MetricsUrl = Annotated[
    str | None,
    typer.Option(
        "--metrics-url",
        envvar="SERVEGATE_METRICS_URL",
        metavar="URL",
        rich_help_panel="Connection",
        help="URL of the metrics port (default: the gateway of servegate.toml in this folder).",
    ),
]
Folder = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        rich_help_panel=REPORT,
        help="Folder of the reports; each report gets a subfolder.",
    ),
]
Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        rich_help_panel=REPORT,
        help="Name of the report (default: time, model and kind).",
    ),
]
NoObserve = Annotated[
    bool,
    typer.Option(
        "--no-observe",
        rich_help_panel=REPORT,
        help="Leave the metrics of the gateway out of the report.",
    ),
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        rich_help_panel=CALLS,
        help="Skip the test call that must succeed before the run.",
    ),
]
Share = Annotated[
    bool,
    typer.Option("--share", rich_help_panel=REPORT, help="Also upload the report to the gateway."),
]

DEFAULT_FOLDER = Path("load-reports")


def ways_of(texts: Iterable[str], url: str, grpc_url: str) -> "tuple[Way, ...]":
    """The lanes that `--protocol` asks for, each once; `Invalid` names what is known."""
    from serve.load.plan import Protocol
    from serve.load.preparing import Way

    weights: dict[Protocol, float] = {}
    for word in (part.strip() for text in texts for part in text.split(",")):
        name, mark, share = word.partition("=")
        if name not in list(Protocol):
            raise Invalid(
                f"--protocol cannot be '{word}'", why=f"expected one of {', '.join(Protocol)}"
            )
        if Protocol(name) in weights:
            raise Invalid(
                f"--protocol contains '{name}' twice", try_this=f"{name}=2 to set its weight"
            )
        weights[Protocol(name)] = _weight(word, share) if mark else 1.0
    ways = []
    for protocol, weight in (weights or {Protocol.HTTP_BINARY: 1.0}).items():
        is_grpc = protocol in (Protocol.GRPC, Protocol.GRPC_STREAM)
        address, tls, prefix = endpoint(grpc_url if is_grpc else url)
        ways.append(Way(protocol, address, weight, tls, "" if is_grpc else prefix))
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
