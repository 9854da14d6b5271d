"""Settings: what is fixed at start. One frozen tree: flag > environment > servegate.toml > default.

Every setting is one row: its name is the flag (`--http-port`), the key in `servegate.toml`
(`http_port`) and the variable (`SERVEGATE_HTTP_PORT`). `Explained` remembers where each value came
from, for `servegate config explain`.
"""

import dataclasses
import ipaddress
import json
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve.core.discovery import places_of
from serve.core.errors import Invalid
from serve.core.flavours import Machine
from serve.core.limits import Limits
from serve.core.replicas import Replica

PREFIX = "SERVEGATE_"
FILE = "servegate.toml"


def _row(default: Any, text: str) -> Any:
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is fixed at start. Times are in seconds, sizes in bytes."""

    model_repo: str = _row(
        "model_repo",
        "model repository in Triton's layout; if empty, the gateway serves the models that the "
        "Tritons have already loaded",
    )
    state: str = _row(
        ".servegate", "folder for the store, the saved snapshot and other runtime files"
    )
    replicas: int = _row(1, "number of local Triton servers that `up` starts")
    autoscale: str = _row(
        "",
        "for `up`: range MIN..MAX of the number of local Tritons, which follows the scaling hints",
    )
    workers: int = _row(1, "worker processes of the gateway")
    host: str = _row("127.0.0.1", "address to listen on for inference and metrics")
    http_port: int = _row(8000, "port for KServe v2 over HTTP")
    grpc_port: int = _row(8001, "port for KServe v2 over gRPC")
    metrics_port: int = _row(8002, "port of the Prometheus metrics")
    admin_host: str = _row("127.0.0.1", "address of the admin API")
    admin_port: int = _row(8080, "port of the admin API and the web UI")
    admin_hosts: tuple[str, ...] = _row(
        (), "additional Host header values that the admin API accepts, comma-separated"
    )
    admin_url: str = _row(
        "",
        "URL of the admin API, used by commands; default: the value of `control`, or this "
        "machine if that is empty",
    )
    keda_port: int = _row(0, "port of the external scaler for KEDA (gRPC) on admin_host; 0: off")
    triton: tuple[str, ...] = _row(
        (), "running Tritons, comma-separated: [NAME=]HOST:HTTP:GRPC:METRICS[@POOL]"
    )
    discover: tuple[str, ...] = _row(
        (),
        "where to discover Tritons, comma-separated: kubernetes[=[URL/]NAMESPACE], "
        "dns=HOST:HTTP:GRPC:METRICS[@POOL]",
    )
    control: str = _row(
        "", "URL of the control plane, for `proxy`; default: the one on this machine"
    )
    gateway: tuple[str, ...] = _row(
        (),
        "URLs at which the control plane reaches the gateway, separated by commas, in the order "
        "HTTP, gRPC, metrics; default: the gateway on this machine",
    )
    secret: str = _row(
        "", "secret shared by control plane and workers; default: generated in the state folder"
    )
    max_in_flight: int = _row(
        256, "maximum number of calls in flight per model, across all workers"
    )
    max_body_bytes: int = _row(1 << 30, "maximum size of a request body or gRPC message")
    max_inflated_bytes: int = _row(1 << 30, "maximum size of a request body after decompression")
    max_in_flight_bytes: int = _row(
        1 << 28,
        "maximum memory per worker for request bodies and their translation between protocols",
    )
    max_head_bytes: int = _row(
        1 << 16, "maximum size of a request head: path and headers, or metadata"
    )
    max_chunks: int = _row(1 << 16, "maximum number of chunks in a chunked request body")
    max_incomplete: int = _row(
        128,
        "maximum number of calls with incomplete bodies per API key or client address, per worker",
    )
    max_connections: int = _row(4096, "maximum number of client connections per worker and port")
    max_streams: int = _row(256, "maximum number of concurrent calls on one gRPC connection")
    max_frame_bytes: int = _row(1 << 18, "maximum size of an HTTP/2 frame")
    max_continuations: int = _row(
        8, "maximum number of CONTINUATION frames in one HTTP/2 header block"
    )
    max_resets: int = _row(
        500,
        "maximum number of stream resets (HTTP/2) by a gRPC client within ten seconds, for streams "
        "whose calls have not begun; for calls that have begun, the limit is ten times as high",
    )
    max_pings: int = _row(
        2000, "maximum number of HTTP/2 control frames that a client may send within ten seconds"
    )
    head_timeout: float = _row(10.0, "timeout for receiving the request head")
    body_timeout: float = _row(30.0, "maximum pause between two parts of a request body")
    min_body_rate: int = _row(
        8192,
        "minimum upload rate of a request body in bytes per second, averaged over body_timeout, "
        "or over 5 s while the gateway streams the body to Triton",
    )
    idle_timeout: float = _row(75.0, "time after which a client connection without calls is closed")
    cancel: str = _row(
        "auto",
        "what happens when a client cancels a gRPC call: forward (cancel it in Triton), absorb "
        "(let it finish in Triton) or auto (forward only to Tritons that are known to survive a "
        "cancelled call)",
    )
    call_timeout: float = _row(300.0, "maximum duration of a call")
    connect_timeout: float = _row(1.0, "timeout for connecting to a Triton")
    drain_timeout: float = _row(5.0, "maximum time for calls in flight to finish at shutdown")
    start_timeout: float = _row(120.0, "maximum time for local Tritons to become ready")
    tick: float = _row(0.5, "interval between health checks of a replica")
    scan_interval: float = _row(2.0, "interval between scans of the model repository")
    seed: int = _row(-1, "random seed for the traffic split, for tests; -1: chosen by the system")
    log_level: str = _row("info", "debug, info, warning or error")
    log_format: str = _row("text", "text or json")
    auth: str = _row(
        "auto",
        "when to require API keys: auto (if one exists, or host is not loopback), keys (always) "
        "or none (never)",
    )
    tls_cert: str = _row(
        "", "certificate chain for all listeners, PEM; reloaded when the file changes"
    )
    tls_key: str = _row("", "private key of tls_cert, PEM")
    tls_client_ca: str = _row(
        "", "CA that signs client certificates, PEM; if set, clients must present a certificate"
    )
    insecure: bool = _row(
        False, "allow listening on non-loopback addresses without API keys or TLS"
    )
    access_log: str = _row(
        "-", "destination of the access log: a file, '-' for the main log, or empty to disable it"
    )
    access_log_share: float = _row(
        0.01, "fraction of successful calls in the access log; failed calls are always logged"
    )
    otel: str = _row(
        "", "OTLP endpoint for traces; requires the optional dependencies servegate[otel]"
    )
    allow_management: bool = _row(
        False, "serve Triton's repository, trace, logging and shared-memory extensions"
    )
    triton_args: tuple[str, ...] = _row((), "additional flags for local Tritons, comma-separated")
    database: str = _row("", "PostgreSQL URL of the store; default: SQLite in the state folder")
    storage: str = _row(
        "",
        "storage of published versions: a folder, s3://, gs:// or az://; default: in the state "
        "folder",
    )
    delivery: str = _row("folder", "how Tritons get published versions: folder, agents or bucket")
    delivery_folder: str = _row(
        "",
        "folder from which Tritons read published versions; default: in the state folder, for "
        "local Tritons",
    )
    max_upload_bytes: int = _row(20 << 30, "maximum size of an uploaded version")
    upload_quota: int = _row(100 << 30, "maximum total size of unfinished uploads")
    upload_keep: float = _row(
        7 * 86400.0, "time after which an unfinished upload is deleted; 7 days by default"
    )
    allow_code_models: bool = _row(
        False, "allow uploads that contain code: Python models, .so files"
    )
    quarantine: str = _row(
        "auto",
        "test of each version on a temporary Triton before a replica loads it: auto (if "
        "Triton is installed here), required or off",
    )
    quarantine_bytes: int = _row(4 << 30, "memory limit of a version in quarantine")
    quarantine_timeout: float = _row(300.0, "load timeout of a version in quarantine")
    conversions: int = _row(
        1, "maximum number of concurrent conversions of uploaded models; 0 disables conversion"
    )
    conversion_memory: int = _row(8 << 30, "memory limit of a conversion")
    conversion_timeout: float = _row(1800.0, "time limit of a conversion")
    contract_interval: float = _row(60.0, "interval between runs of the golden cases on a replica")
    min_available: float = _row(
        0.5, "minimum fraction of a pool's replicas that keep serving while others load a version"
    )
    without_spare: str = _row(
        "warn",
        "what to do when a version must be loaded on the only serving replica: warn (load it with "
        "a warning) or refuse (wait)",
    )
    unload_after: float = _row(
        300.0, "time after which a version that nothing refers to is unloaded"
    )
    keep_loaded: int = _row(
        2,
        "number of newest versions per model that stay loaded even if unused, as long as memory "
        "allows",
    )
    keep_versions: int = _row(10, "number of versions per model that garbage collection keeps")
    pool_memory: tuple[str, ...] = _row(
        (), "memory available for models on each replica of a pool: POOL=BYTES; default: no limit"
    )
    gpu_metrics: tuple[str, ...] = _row(
        (),
        "URLs of dcgm-exporters: POOL=URL or REPLICA=URL; {host} stands for the Triton's host name",
    )
    waking_calls: int = _row(
        256, "maximum number of calls per worker that wait while a pool scales up from zero"
    )
    waking_timeout: float = _row(
        120.0, "maximum time that a call waits while a pool scales up from zero"
    )
    machine_facts: tuple[str, ...] = _row(
        (),
        "hardware properties of pools or replicas, used to choose a flavour: POOL.FACT=VALUE or "
        "REPLICA.FACT=VALUE",
    )

    @property
    def state_path(self) -> Path:
        """The state folder, absolute."""
        return Path(self.state).absolute()

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The Host names under which the admin API may be addressed; `*` is any.

        On loopback the list keeps web pages of other names out (DNS rebinding). Elsewhere a page
        would have to know a key, unless `insecure` says that the network protects the port.
        """
        if not is_loopback(self.admin_host) and not self.admin_hosts:
            return ("*",)
        return ("localhost", "127.0.0.1", "[::1]", self.admin_host, *self.admin_hosts)

    @property
    def control_url(self) -> str:
        """Where workers find the control plane."""
        scheme = "https" if self.tls_cert else "http"
        default = f"{scheme}://{_client_host(self.admin_host)}:{self.admin_port}"
        return self.control.rstrip("/") or default

    @property
    def gateway_urls(self) -> tuple[str, str, str]:
        """Where the control plane calls the data plane: HTTP, gRPC and metrics, all as URLs."""
        if self.gateway:
            if len(self.gateway) != 3 or not all(
                url.startswith(("http://", "https://")) for url in self.gateway
            ):
                raise Invalid(
                    f"'{','.join(self.gateway)}' is not a valid gateway",
                    why="expected three URLs separated by commas: HTTP, gRPC, metrics",
                    try_this="--gateway http://gw:8000,http://gw:8001,http://gw:8002",
                )
            http, grpc, metrics = (url.rstrip("/") for url in self.gateway)
            return http, grpc, metrics
        start = f"{'https' if self.tls_cert else 'http'}://{_client_host(self.host)}"
        return (
            f"{start}:{self.http_port}",
            f"{start}:{self.grpc_port}",
            f"{start}:{self.metrics_port}",
        )

    @property
    def limits(self) -> Limits:
        """What one caller may ask of a worker."""
        return Limits(
            body=self.max_body_bytes,
            head=self.max_head_bytes,
            in_flight=self.max_in_flight_bytes,
            inflated=self.max_inflated_bytes,
            call=self.call_timeout,
            head_time=self.head_timeout,
            body_idle=self.body_timeout,
            body_rate=self.min_body_rate,
            idle=self.idle_timeout,
            chunks=self.max_chunks,
            incomplete=self.max_incomplete,
            connections=self.max_connections,
            streams=self.max_streams,
            frame=self.max_frame_bytes,
            continuations=self.max_continuations,
            resets=self.max_resets,
            pings=self.max_pings,
        )

    def tritons(self) -> tuple[Replica, ...]:
        """The replicas that `triton` names, each as `[NAME=]ADDRESS[@POOL]`."""
        replicas = []
        for number, text in enumerate(self.triton):
            replicas.append(Replica.named(text, default=f"triton-{number}"))
        if len({replica.name for replica in replicas}) < len(replicas):
            raise Invalid("two replicas have the same name", why=", ".join(self.triton))
        return tuple(replicas)

    @property
    def publishes(self) -> bool:
        """Whether versions can be pushed: there is a way to bring them to the Tritons."""
        return bool(self.delivery_folder) or self.delivery != "folder"

    @property
    def autoscale_bounds(self) -> tuple[int, int] | None:
        """The fewest and the most local Tritons; None where their number is fixed."""
        if not self.autoscale:
            return None
        least, _, most = self.autoscale.partition("..")
        numbers = [int(each) if _is_count(each) else -1 for each in (least, most)]
        if not 0 <= numbers[0] <= numbers[1] or numbers[1] < 1:
            raise Invalid(
                f"'{self.autoscale}' is not a valid range of replicas",
                why="expected MIN..MAX: whole numbers, with MAX at least MIN and at least 1",
                try_this="--autoscale 1..4, or 0..4 to scale to zero when there are no calls",
            )
        return numbers[0], numbers[1]

    def dcgm_url(self, replica: Replica) -> str:
        """The URL of the dcgm-exporter of a replica, from `gpu_metrics`; or empty."""
        urls = dict(text.partition("=")[::2] for text in self.gpu_metrics)
        for name, url in urls.items():
            if not name or not url.startswith(("http://", "https://")):
                raise Invalid(
                    f"'{name}={url}' is not a valid value for 'gpu_metrics'",
                    why="expected POOL=URL or REPLICA=URL",
                    try_this="--gpu-metrics default=http://{host}:9400/metrics",
                )
        found = urls.get(replica.name) or urls.get(replica.pool) or ""
        return found.replace("{host}", replica.host)

    def memory_of_pools(self) -> dict[str, int]:
        """The memory budget of each replica by pool, in bytes, as `pool_memory` says it."""
        budgets = {}
        for text in self.pool_memory:
            pool, _, number = text.partition("=")
            if not pool or not (number.isascii() and number.isdigit()):
                raise Invalid(
                    f"'{text}' is not a valid value for 'pool_memory'", why="expected POOL=BYTES"
                )
            budgets[pool] = int(number)
        return budgets

    def machine(self, replica: str, pool: str = "") -> Machine:
        """What `machine_facts` says of a replica: of its pool, and before that of itself.

        `quarantine` is the name of the Triton that tries versions.
        """
        facts: dict[str, dict[str, str]] = {}
        for text in self.machine_facts:
            where, _, value = text.partition("=")
            name, _, fact = where.rpartition(".")
            if not name or not value:
                why = "expected POOL.FACT=VALUE, for example a100.compute_capability=8.0"
                raise Invalid(f"'{text}' is not a valid value for 'machine_facts'", why=why)
            facts.setdefault(name, {})[fact] = value
            Machine.of(facts[name])
        return Machine.of(facts.get(pool, {}) | facts.get(replica, {}))

    def environment(self) -> dict[str, str]:
        """The same settings as variables, for child processes."""
        return {
            PREFIX + row.name.upper(): _to_text(getattr(self, row.name))
            for row in dataclasses.fields(self)
        }


@dataclass(frozen=True, slots=True)
class Explained:
    """Settings, and for each name where its value came from."""

    settings: Settings
    sources: Mapping[str, str]


def load(flags: Mapping[str, Any], environment: Mapping[str, str], folder: Path) -> Explained:
    """Put the four sources together; `Invalid` names the source of a value that does not fit."""
    from_file = _read_file(folder / FILE)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    rows = {row.name: row for row in dataclasses.fields(Settings)}
    for name in from_file:
        if name not in rows:
            raise Invalid(
                f"{FILE} contains the unknown setting '{name}'", try_this="servegate config show"
            )
    for name, row in rows.items():
        variable = PREFIX + name.upper()
        if flags.get(name) is not None:
            given, source = flags[name], f"flag --{name.replace('_', '-')}"
        elif variable in environment:
            given, source = environment[variable], f"environment {variable}"
        elif name in from_file:
            given, source = from_file[name], FILE
        else:
            given, source = row.default, "default"
        values[name] = _convert(name, given, row.default, source)
        sources[name] = source
    settings = Settings(**values)
    _check(settings, sources)
    return Explained(settings, sources)


def keys_are_required(settings: Settings, guarded: bool, *, host: str = "") -> bool:
    """Whether callers must show an API key. `guarded`: there is one or was; `host`: where they ask.

    Once there was a key, calls stay closed when the last one is gone. Where others reach the port
    keys are needed from the start, unless `insecure` says that the network protects it.
    """
    if settings.auth != "auto":
        return settings.auth == "keys"
    return guarded or not (settings.insecure or is_loopback(host or settings.host))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"{path.name} cannot be read", why=str(error)) from error


def _convert(name: str, given: Any, default: Any, source: str) -> Any:
    reader = _READERS[type(default)]
    try:
        return reader(given)
    except (ValueError, TypeError) as error:
        kind = _KINDS[type(default)]
        why = f"expected {kind}"
        raise Invalid(f"'{given}' is not a valid value for '{name}' ({source})", why=why) from error


def _boolean(value: Any) -> bool:
    words = {
        "true": True,
        "1": True,
        "yes": True,
        "false": False,
        "0": False,
        "no": False,
        "": False,
    }
    if isinstance(value, bool):
        return value
    try:
        return words[str(value).lower()]
    except KeyError as error:
        raise ValueError(value) from error


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _words(value: Any) -> tuple[str, ...]:
    """A list, as TOML and flags give it; in a variable a JSON list, or words between commas."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    elif isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(_text(part) for part in value)


_READERS: dict[type, Callable[[Any], Any]] = {
    bool: _boolean,
    int: _whole,
    float: _number,
    str: _text,
    tuple: _words,
}
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    tuple: "a list",
}


def _to_text(value: Any) -> str:
    if isinstance(value, tuple):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one_of(*words: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in words, f"expected one of {', '.join(words)}"


_PORT = (lambda value: 0 < value < 65536, "expected a port from 1 to 65535")
_NONE_OR_MORE = (lambda value: 0 <= value < math.inf, "expected 0 or more")
_COUNT = (lambda value: value >= 1, "expected at least 1")
_TIME = (lambda value: 0 < value < math.inf, "expected a number of seconds above 0")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("http_port", "grpc_port", "metrics_port", "admin_port"), _PORT),
    **dict.fromkeys(("replicas", "workers", "max_in_flight", "max_body_bytes"), _COUNT),
    **dict.fromkeys(("max_inflated_bytes", "max_in_flight_bytes", "max_chunks"), _COUNT),
    "max_incomplete": _COUNT,
    **dict.fromkeys(("max_connections", "max_streams", "max_resets", "max_pings"), _COUNT),
    "max_head_bytes": (lambda value: value >= 1024, "expected at least 1024"),
    "max_continuations": (lambda value: value >= 0, "expected 0 or more"),
    "min_body_rate": (lambda value: value >= 0, "expected 0 or more"),
    "max_frame_bytes": (lambda value: 1 << 14 <= value < 1 << 24, "expected 16384 to 16777215"),
    **dict.fromkeys(("head_timeout", "body_timeout", "idle_timeout"), _TIME),
    "cancel": _one_of("auto", "forward", "absorb"),
    **dict.fromkeys(("call_timeout", "connect_timeout", "drain_timeout", "start_timeout"), _TIME),
    **dict.fromkeys(("tick", "scan_interval"), _TIME),
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of("text", "json"),
    "auth": _one_of("auto", "keys", "none"),
    **dict.fromkeys(("max_upload_bytes", "upload_quota", "quarantine_bytes"), _COUNT),
    "conversions": _NONE_OR_MORE,
    "keda_port": (lambda value: 0 <= value < 65536, "expected 0, or a port from 1 to 65535"),
    "waking_calls": _NONE_OR_MORE,
    "waking_timeout": _TIME,
    "conversion_memory": _COUNT,
    "conversion_timeout": _TIME,
    **dict.fromkeys(("upload_keep", "quarantine_timeout", "contract_interval"), _TIME),
    **dict.fromkeys(("unload_after", "keep_loaded"), _NONE_OR_MORE),
    "keep_versions": _COUNT,
    "delivery": _one_of("folder", "agents", "bucket"),
    "quarantine": _one_of("auto", "required", "off"),
    "without_spare": _one_of("warn", "refuse"),
    "min_available": (lambda value: 0 <= value <= 1, "expected a share from 0 to 1"),
    "access_log_share": (lambda value: 0 <= value <= 1, "expected a share from 0 to 1"),
}
_PARSED: dict[str, Callable[[Settings], object]] = {
    "triton": Settings.tritons,
    "gateway": lambda settings: settings.gateway_urls,
    "discover": lambda settings: places_of(settings.discover),
}


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
    for name, (fits, why) in _RULES.items():
        value = getattr(settings, name)
        if not fits(value):
            raise Invalid(f"'{value}' is not a valid value for '{name}' ({sources[name]})", why=why)
    ports = [settings.http_port, settings.grpc_port, settings.metrics_port, settings.admin_port]
    ports += [settings.keda_port] if settings.keda_port else []
    if len(set(ports)) < len(ports):
        raise Invalid(
            "two listeners have the same port",
            why=f"ports of http, grpc, metrics, admin, keda: {ports}",
        )
    for name, read in _PARSED.items():
        try:
            read(settings)
        except Invalid as error:
            what = f"{error.what} ({sources[name]})"
            raise Invalid(what, why=error.why, try_this=error.try_this) from error
    settings.memory_of_pools()
    settings.machine("")
    _ = settings.autoscale_bounds
    settings.dcgm_url(Replica("", "", 0, 0, 0))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. Names other than localhost do not count."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _client_host(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)


def from_environment() -> Settings:
    """The settings of a child process, which its parent has put into the environment."""
    return load({}, os.environ, Path("/nonexistent")).settings
