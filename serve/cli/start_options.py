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
        help="Model repository in Triton's layout (default: model_repo; for Tritons that run "
        "elsewhere, the models that they have loaded).",
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
    int | None, typer.Option(metavar="N", help="Random seed for the traffic split, for tests.")
]

Host = Annotated[
    str | None,
    option(
        _NETWORK, "HOST", "Address of the data ports and the metrics port (default: 127.0.0.1)."
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
        _NETWORK, "PORT", "Port of KEDA's external scaler (gRPC) on the admin host (default: off)."
    ),
]

Triton = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "ADDRESS",
        "Running Triton as [NAME=]HOST:HTTP:GRPC:METRICS[@POOL], for example "
        "gpu-1:8000:8001:8002 (repeatable).",
    ),
]
Discover = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "SOURCE",
        "Source of Tritons: kubernetes[=[URL/]NAMESPACE] or "
        "dns=HOST:HTTP:GRPC:METRICS[@POOL] (repeatable).",
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
    option(_TRITONS, "POOL=BYTES", "Memory of each replica of a pool (repeatable)."),
]
MachineFacts = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "NAME.FACT=VALUE",
        "Hardware of a pool or replica, for example a100.compute_capability=8.0 (repeatable).",
    ),
]
GpuMetrics = Annotated[
    list[str] | None,
    option(
        _TRITONS,
        "NAME=URL",
        "dcgm-exporter of a pool or replica; {host} is the Triton's host (repeatable).",
    ),
]
MinAvailable = Annotated[
    float | None,
    option(
        _TRITONS,
        "SHARE",
        "Share of a pool that keeps serving while a replica loads a version, from 0 to 1 "
        "(default: 0.5).",
    ),
]
WithoutSpare = Annotated[
    str | None,
    option(
        _TRITONS,
        "warn|refuse",
        "What to do when a version has to load on the only serving replica: warn (and load "
        "it) or refuse (default: warn).",
    ),
]
KeepLoaded = Annotated[
    int | None,
    option(
        _TRITONS,
        "N",
        "Newest versions of a model that stay loaded without being used (default: 2).",
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
        _PUBLISHING, "folder|agents|bucket", "How Tritons get published versions (default: folder)."
    ),
]
DeliveryFolder = Annotated[
    str | None, option(_PUBLISHING, "DIR", "Folder that Tritons read published versions from.")
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
        "Trial of each version on a temporary Triton (default: auto).",
    ),
]
QuarantineBytes = Annotated[
    int | None,
    option(_PUBLISHING, "BYTES", "Memory limit of a version in quarantine (default: 4 GiB)."),
]
QuarantineTimeout = Annotated[
    float | None,
    option(
        _PUBLISHING, "SECONDS", "Longest time for a version to load in quarantine (default: 300)."
    ),
]
Conversions = Annotated[
    int | None,
    option(
        _PUBLISHING,
        "N",
        "Conversions of uploaded models that run at the same time; 0: none (default: 1).",
    ),
]
ConversionMemory = Annotated[
    int | None, option(_PUBLISHING, "BYTES", "Memory limit of a conversion (default: 8 GiB).")
]
ConversionTimeout = Annotated[
    float | None, option(_PUBLISHING, "SECONDS", "Longest time for a conversion (default: 1800).")
]
ContractInterval = Annotated[
    float | None,
    option(_PUBLISHING, "SECONDS", "Interval between contract runs on a replica (default: 60)."),
]

Auth = Annotated[
    str | None,
    option(
        _SECURITY,
        "auto|keys|none",
        "When API keys are required: auto (a key exists, or the address is not loopback), "
        "keys (always) or none (never) (default: auto).",
    ),
]
TlsCert = Annotated[
    str | None, option(_SECURITY, "FILE", "Certificate chain of every listener (PEM).")
]
TlsKey = Annotated[str | None, option(_SECURITY, "FILE", "Private key of --tls-cert (PEM).")]
TlsClientCa = Annotated[
    str | None, option(_SECURITY, "FILE", "CA of the certificates that clients must present (PEM).")
]
Insecure = Annotated[
    bool | None,
    option(
        _SECURITY, "", "Allow addresses other than loopback without API keys or TLS.", "--insecure"
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
    option(_LOGGING, "FILE", "File of the access log; - for the log itself (default: -)."),
]
AccessLogShare = Annotated[
    float | None,
    option(
        _LOGGING,
        "SHARE",
        "Share of successful calls in the access log, from 0 to 1 (default: 0.01). Failed "
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
        "Range for the number of local Tritons, which then follows the scaling hints; with "
        "0..MAX, it scales to zero.",
    ),
]
