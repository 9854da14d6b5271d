"""The options with which `servegate up`, `proxy` and `control` start: each is a setting."""

from typing import Annotated

import typer

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
    typer.Option(metavar="DIR", help="Folder of the run-time state (default: .servegate)."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Worker processes of the gateway (default: 1).")
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="Random seed of the traffic split, for tests.")
]

Host = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        rich_help_panel=_NETWORK,
        help="Address of the data ports and the metrics port (default: 127.0.0.1).",
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        rich_help_panel=_NETWORK,
        help="Port for KServe v2 over HTTP (default: 8000).",
    ),
]
GrpcPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        rich_help_panel=_NETWORK,
        help="Port for KServe v2 over gRPC (default: 8001).",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        rich_help_panel=_NETWORK,
        help="Port of the Prometheus metrics (default: 8002).",
    ),
]
AdminHost = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        rich_help_panel=_NETWORK,
        help="Address of the admin API (default: 127.0.0.1).",
    ),
]
AdminPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        rich_help_panel=_NETWORK,
        help="Port of the admin API and the web UI (default: 8080).",
    ),
]
KedaPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        rich_help_panel=_NETWORK,
        help="Port of KEDA's external scaler (gRPC) on the admin host (default: off).",
    ),
]

Triton = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        rich_help_panel=_TRITONS,
        help="Running Triton as [NAME=]HOST:HTTP:GRPC:METRICS[@POOL], for example "
        "gpu-1:8000:8001:8002 (repeatable).",
    ),
]
Discover = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE",
        rich_help_panel=_TRITONS,
        help="Source of Tritons: kubernetes[=[URL/]NAMESPACE] or "
        "dns=HOST:HTTP:GRPC:METRICS[@POOL] (repeatable).",
    ),
]
TritonArg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FLAG",
        rich_help_panel=_TRITONS,
        help="Additional flag of local Tritons, for example --log-verbose=1 (repeatable).",
    ),
]
PoolMemory = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POOL=BYTES",
        rich_help_panel=_TRITONS,
        help="Memory of each replica of a pool (repeatable).",
    ),
]
MachineFacts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME.FACT=VALUE",
        rich_help_panel=_TRITONS,
        help="Hardware of a pool or replica, for example a100.compute_capability=8.0 (repeatable).",
    ),
]
GpuMetrics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=URL",
        rich_help_panel=_TRITONS,
        help="dcgm-exporter of a pool or replica; {host} is the Triton's host (repeatable).",
    ),
]
MinAvailable = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=_TRITONS,
        help="Share of a pool that keeps serving while a replica loads a version, from 0 to 1 "
        "(default: 0.5).",
    ),
]
WithoutSpare = Annotated[
    str | None,
    typer.Option(
        metavar="warn|refuse",
        rich_help_panel=_TRITONS,
        help="What to do when a version has to load on the only serving replica: warn (and load "
        "it) or refuse (default: warn).",
    ),
]
KeepLoaded = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_TRITONS,
        help="Newest versions of a model that stay loaded without being used (default: 2).",
    ),
]

Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_PUBLISHING,
        help="PostgreSQL URL of the store (default: SQLite in the state folder).",
    ),
]
StorageUrl = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        rich_help_panel=_PUBLISHING,
        help="Storage of published versions: a folder, s3://, gs:// or az:// (default: in the "
        "state folder).",
    ),
]
Delivery = Annotated[
    str | None,
    typer.Option(
        metavar="folder|agents|bucket",
        rich_help_panel=_PUBLISHING,
        help="How Tritons get published versions (default: folder).",
    ),
]
DeliveryFolder = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        rich_help_panel=_PUBLISHING,
        help="Folder that Tritons read published versions from.",
    ),
]
AllowCodeModels = Annotated[
    bool | None,
    typer.Option(
        "--allow-code-models",
        rich_help_panel=_PUBLISHING,
        help="Accept versions that contain code: Python models, .so files.",
    ),
]
Quarantine = Annotated[
    str | None,
    typer.Option(
        metavar="auto|required|off",
        rich_help_panel=_PUBLISHING,
        help="Trial of each version on a temporary Triton (default: auto).",
    ),
]
QuarantineBytes = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        rich_help_panel=_PUBLISHING,
        help="Memory limit of a version in quarantine (default: 4 GiB).",
    ),
]
QuarantineTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        rich_help_panel=_PUBLISHING,
        help="Longest time for a version to load in quarantine (default: 300).",
    ),
]
Conversions = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_PUBLISHING,
        help="Conversions of uploaded models that run at the same time; 0: none (default: 1).",
    ),
]
ConversionMemory = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        rich_help_panel=_PUBLISHING,
        help="Memory limit of a conversion (default: 8 GiB).",
    ),
]
ConversionTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        rich_help_panel=_PUBLISHING,
        help="Longest time for a conversion (default: 1800).",
    ),
]
ContractInterval = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        rich_help_panel=_PUBLISHING,
        help="Interval between contract runs on a replica (default: 60).",
    ),
]

Auth = Annotated[
    str | None,
    typer.Option(
        metavar="auto|keys|none",
        rich_help_panel=_SECURITY,
        help="When API keys are required: auto (a key exists, or the address is not loopback), "
        "keys (always) or none (never) (default: auto).",
    ),
]
TlsCert = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_SECURITY,
        help="Certificate chain of every listener (PEM).",
    ),
]
TlsKey = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", rich_help_panel=_SECURITY, help="Private key of --tls-cert (PEM)."
    ),
]
TlsClientCa = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_SECURITY,
        help="CA of the certificates that clients must present (PEM).",
    ),
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure",
        rich_help_panel=_SECURITY,
        help="Allow addresses other than loopback without API keys or TLS.",
    ),
]
AllowManagement = Annotated[
    bool | None,
    typer.Option(
        "--allow-management",
        rich_help_panel=_SECURITY,
        help="Serve Triton's repository, trace, logging and shared-memory extensions.",
    ),
]

AccessLog = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_LOGGING,
        help="File of the access log; - for the log itself (default: -).",
    ),
]
AccessLogShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=_LOGGING,
        help="Share of successful calls in the access log, from 0 to 1 (default: 0.01). Failed "
        "calls are always logged.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        rich_help_panel=_LOGGING,
        help="Log level: debug, info, warning or error (default: info).",
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(metavar="text|json", rich_help_panel=_LOGGING, help="Log format (default: text)."),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_TRITONS, help="Number of local Tritons (default: 1)."
    ),
]
Autoscale = Annotated[
    str | None,
    typer.Option(
        metavar="MIN..MAX",
        rich_help_panel=_TRITONS,
        help="Range for the number of local Tritons, which then follows the scaling hints; with "
        "0..MAX, it scales to zero.",
    ),
]
