"""The options with which `servegate up`, `proxy` and `control` start: each is a setting."""

from typing import Annotated

import typer

from serve.cli.panels import option

_NETWORK, _TRITONS, _LOGGING = "Network", "Tritons", "Logging"
_PUBLISHING, _SECURITY = "Storage and publishing", "Security"

ModelRepo = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Model repository in Triton's layout; '' serves the models that the Tritons have "
        "already loaded (default: model_repo, or '' for Tritons that run elsewhere).",
    ),
]
State = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder for runtime state (default: .servegate)."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Worker processes of the gateway (default: 1).")
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Random seed for the traffic split, for tests (default: random)."
    ),
]

Host = Annotated[
    str | None,
    option(
        _NETWORK, "HOST", "Address to listen on for inference and metrics (default: 127.0.0.1)."
    ),
]
HttpPort = Annotated[
    int | None, option(_NETWORK, "PORT", "Port for KServe v2 over HTTP (default: 8000).")
]
GrpcPort = Annotated[
    int | None, option(_NETWORK, "PORT", "Port for KServe v2 over gRPC (default: 8001).")
]
MetricsPort = Annotated[
    int | None, option(_NETWORK, "PORT", "Port of the Prometheus metrics (default: 8002).")
]
AdminHost = Annotated[
    str | None, option(_NETWORK, "HOST", "Address of the admin API (default: 127.0.0.1).")
]
AdminPort = Annotated[
    int | None, option(_NETWORK, "PORT", "Port of the admin API and the web UI (default: 8080).")
]
KedaPort = Annotated[
    int | None,
    option(
        _NETWORK,
        "PORT",
        "Port of the external scaler for KEDA (gRPC) on the admin host (default: off).",
    ),
]

Triton = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "ADDRESS",
        "Address of a running Triton, with its HTTP, gRPC and metrics ports: "
        "[NAME=]HOST:HTTP:GRPC:METRICS[@POOL], for example gpu-1:8000:8001:8002 (repeatable).",
    ),
]
Discover = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "SOURCE",
        "Discover Tritons through Kubernetes or DNS: kubernetes[=[URL/]NAMESPACE], or "
        "dns=HOST:HTTP:GRPC:METRICS[@POOL] with the HTTP, gRPC and metrics ports (repeatable).",
    ),
]
TritonArg = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "FLAG",
        "Additional flag for local Tritons, for example --log-verbose=1 (repeatable).",
    ),
]
PoolMemory = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "POOL=BYTES",
        "Memory available for models on each replica of a pool (repeatable; default: no limit).",
    ),
]
MachineFacts = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "NAME.FACT=VALUE",
        "Hardware property of a pool or replica, used to choose a flavour. The properties are "
        "compute_capability, tensorrt, gpu and engine_cache; for example "
        "a100.compute_capability=8.0 (repeatable).",
    ),
]
GpuMetrics = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "NAME=URL",
        "URL of the dcgm-exporter of a pool or replica; {host} stands for the Triton's host name "
        "(repeatable).",
    ),
]
MinAvailable = Annotated[
    float | None,
    option(
        _TRITONS,
        "SHARE",
        "Minimum fraction of a pool's replicas that keep serving while others load a version, "
        "from 0 to 1 (default: 0.5).",
    ),
]
WithoutSpare = Annotated[
    str | None,
    option(
        _TRITONS,
        "warn|refuse",
        "What to do when a version must be loaded on the only serving replica: load it with a "
        "warning (warn), or wait (refuse) (default: warn).",
    ),
]
KeepLoaded = Annotated[
    int | None,
    option(
        _TRITONS,
        "N",
        "Number of newest versions per model that stay loaded even if unused, as long as memory "
        "allows (default: 2).",
    ),
]

Database = Annotated[
    str | None,
    option(
        _PUBLISHING, "URL", "PostgreSQL URL of the store (default: SQLite in the state folder)."
    ),
]
StorageUrl = Annotated[
    str | None,
    option(
        _PUBLISHING,
        "URL",
        "Storage of published versions: a folder, s3://, gs:// or az:// (default: in the "
        "state folder).",
        "--storage",
    ),
]
Delivery = Annotated[
    str | None,
    option(
        _PUBLISHING,
        "folder|agents|bucket",
        "How Tritons get published versions: folder (the control plane writes them to "
        "--delivery-folder), agents (`servegate sync` runs next to each Triton) or bucket "
        "(Triton reads the object storage itself) (default: folder).",
    ),
]
DeliveryFolder = Annotated[
    str | None,
    option(
        _PUBLISHING,
        "DIR",
        "Folder from which Tritons read published versions (default: in the state folder, for "
        "local Tritons).",
    ),
]
AllowCodeModels = Annotated[
    bool | None,
    option(
        _PUBLISHING,
        "",
        "Accept versions that contain code: Python models, .so files.",
        "--allow-code-models",
    ),
]
Quarantine = Annotated[
    str | None,
    option(
        _PUBLISHING,
        "auto|required|off",
        "Test each version on a temporary Triton before a replica loads it: auto (if Triton is "
        "installed here), required (otherwise refuse to publish) or off (default: auto).",
    ),
]
QuarantineBytes = Annotated[
    int | None,
    option(_PUBLISHING, "BYTES", "Memory limit of a version in quarantine (default: 4 GiB)."),
]
QuarantineTimeout = Annotated[
    float | None,
    option(_PUBLISHING, "SECONDS", "Load timeout of a version in quarantine (default: 300)."),
]
Conversions = Annotated[
    int | None,
    option(
        _PUBLISHING,
        "N",
        "Maximum number of concurrent conversions of uploaded models; 0 disables conversion "
        "(default: 1).",
    ),
]
ConversionMemory = Annotated[
    int | None, option(_PUBLISHING, "BYTES", "Memory limit of a conversion (default: 8 GiB).")
]
ConversionTimeout = Annotated[
    float | None, option(_PUBLISHING, "SECONDS", "Time limit of a conversion (default: 1800).")
]
ContractInterval = Annotated[
    float | None,
    option(
        _PUBLISHING,
        "SECONDS",
        "Interval between runs of the golden cases on a replica (default: 60).",
    ),
]

Auth = Annotated[
    str | None,
    option(
        _SECURITY,
        "auto|keys|none",
        "When to require API keys: auto (if a key exists, or the address is not loopback), keys "
        "(always) or none (default: auto).",
    ),
]
TlsCert = Annotated[
    str | None, option(_SECURITY, "FILE", "Certificate chain for all listeners (PEM).")
]
TlsKey = Annotated[str | None, option(_SECURITY, "FILE", "Private key of --tls-cert (PEM).")]
TlsClientCa = Annotated[
    str | None,
    option(
        _SECURITY,
        "FILE",
        "CA that signs client certificates (PEM); if set, clients must present a certificate.",
    ),
]
Insecure = Annotated[
    bool | None,
    option(
        _SECURITY,
        "",
        "Allow listening on non-loopback addresses without API keys or TLS.",
        "--insecure",
    ),
]
AllowManagement = Annotated[
    bool | None,
    option(
        _SECURITY,
        "",
        "Serve Triton's repository, trace, logging and shared-memory extensions.",
        "--allow-management",
    ),
]

AccessLog = Annotated[
    str | None,
    option(
        _LOGGING,
        "FILE",
        "Access log file; '-' for the main log, '' for no access log (default: -).",
    ),
]
AccessLogShare = Annotated[
    float | None,
    option(
        _LOGGING,
        "SHARE",
        "Fraction of successful calls in the access log, from 0 to 1 (default: 0.01). Failed "
        "calls are always logged.",
    ),
]
LogLevel = Annotated[
    str | None,
    option(_LOGGING, "LEVEL", "Log level: debug, info, warning or error (default: info)."),
]
LogFormat = Annotated[str | None, option(_LOGGING, "text|json", "Log format (default: text).")]
Replicas = Annotated[int | None, option(_TRITONS, "N", "Number of local Tritons (default: 1).")]
Autoscale = Annotated[
    str | None,
    option(
        _TRITONS,
        "MIN..MAX",
        "Scale the local Tritons between MIN and MAX according to the scaling hints; 0..MAX "
        "allows scaling to zero (default: no autoscaling).",
    ),
]
