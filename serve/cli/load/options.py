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

Model = Annotated[
    str,
    typer.Option("--model", metavar="NAME[@V|:label]", help="A model, a version, or a label."),
]
Protocols = Annotated[
    list[str] | None,
    typer.Option(
        "--protocol",
        metavar="P[=WEIGHT],…",
        help="http-binary, http-json, grpc, grpc-stream, tfserving; repeatable.  [http-binary]",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="[NAME=]@FILE|random",
        help="Pictures, .npy, .npz or .json files, or random values; repeatable.  [random]",
    ),
]
Batch = Annotated[int, typer.Option("--batch", min=0, help="Rows in a call.  [1]", show_default="")]
Expect = Annotated[
    str,
    typer.Option(
        "--expect",
        metavar="[OUTPUT=]@FILE",
        help="The class of each row, as .npy or .npz: top-1 answers are checked.",
    ),
]
RandomBodies = Annotated[
    int, typer.Option("--random-bodies", min=1, max=100_000, help="How many random requests.")
]
SequenceLength = Annotated[
    int,
    typer.Option(
        "--sequences", min=0, metavar="LENGTH", help="For models with state: calls of a sequence."
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--slo", metavar="CONDITIONS", help="Such as 'p99<20ms,errors<0.1%'; status 7 if not met."
    ),
]
Connections = Annotated[
    int,
    typer.Option(
        "--connections", min=1, max=60_000, help="Most calls in flight of a worker; more wait."
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", help="Of a call.")]
WarmUp = Annotated[str, typer.Option("--warm-up", help="Calls before that are not recorded.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=(1 << 32) - 1, help="Of arrivals and random values.")
]
Workers = Annotated[
    int, typer.Option("--workers", "--processes", min=1, max=256, help="Processes on this machine.")
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Where `servegate load worker` of others connect."
    ),
]
ExpectWorkers = Annotated[
    int, typer.Option("--expect-workers", min=0, help="How many of them to wait for.")
]
MetricsUrl = Annotated[
    str | None,
    typer.Option(
        "--metrics-url",
        envvar="SERVEGATE_METRICS_URL",
        help="The metrics port.  [this folder's gateway]",
    ),
]
Folder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where reports are kept, each in a folder.")
]
Name = Annotated[str, typer.Option("--name", help="Of the report.  [time, model, kind]")]
NoObserve = Annotated[
    bool, typer.Option("--no-observe", help="Do not ask the gateway what it saw.")
]
NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Begin without a first call that must succeed.")
]
Share = Annotated[bool, typer.Option("--share", help="Keep the report with the gateway, too.")]

DEFAULT_FOLDER = Path("load-reports")


def ways_of(texts: Iterable[str], url: str, grpc_url: str) -> "tuple[Way, ...]":
    """The lanes that `--protocol` asks for, each once; `Invalid` names what is known."""
    from serve.load.plan import Protocol
    from serve.load.preparing import Way

    weights: dict[Protocol, float] = {}
    for word in (part.strip() for text in texts for part in text.split(",")):
        name, mark, share = word.partition("=")
        if name not in list(Protocol):
            raise Invalid(f"--protocol cannot be '{word}'", why=f"known: {', '.join(Protocol)}")
        if Protocol(name) in weights:
            raise Invalid(f"--protocol {name} is given twice", try_this=f"{name}=2 for a weight")
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
        raise Invalid(f"'{url}' is no address", why=str(error)) from error
    if not host or parts.scheme not in ("http", "https", "grpc"):
        raise Invalid(f"'{url}' is no address", try_this="http://HOST:PORT")
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}", tls, parts.path.rstrip("/")


def _weight(word: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise Invalid(f"--protocol cannot be '{word}'", why="a weight is a number above 0")
    return weight
