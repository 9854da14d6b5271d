"""The options with which `servegate up`, `proxy` and `control` start: each is a setting."""

from typing import Annotated

import typer

ModelRepo = Annotated[
    str | None, typer.Option(help="Folder of the models, in Triton's layout. [model_repo]")
]
State = Annotated[str | None, typer.Option(help="Folder for run-time state. [.servegate]")]
Workers = Annotated[int | None, typer.Option(help="Data-plane processes. [1]")]
Host = Annotated[str | None, typer.Option(help="Address of the data ports. [127.0.0.1]")]
HttpPort = Annotated[int | None, typer.Option(help="KServe v2 over HTTP. [8000]")]
GrpcPort = Annotated[int | None, typer.Option(help="KServe v2 over gRPC. [8001]")]
MetricsPort = Annotated[int | None, typer.Option(help="Prometheus metrics. [8002]")]
AdminHost = Annotated[str | None, typer.Option(help="Address of the admin API. [127.0.0.1]")]
AdminPort = Annotated[int | None, typer.Option(help="Admin API. [8080]")]
Triton = Annotated[
    list[str] | None,
    typer.Option(help="HOST:HTTP:GRPC:METRICS of a running Triton; repeatable."),
]
Discover = Annotated[
    list[str] | None,
    typer.Option(
        help="Find Tritons: kubernetes[=[URL/]NAMESPACE] or dns=HOST:HTTP:GRPC:METRICS[@POOL]; "
        "repeatable."
    ),
]
TritonArg = Annotated[
    list[str] | None, typer.Option(help="A further flag for local Tritons; repeatable.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the split's draws, for tests.")]
Insecure = Annotated[
    bool | None,
    typer.Option("--insecure", help="Allow other addresses than loopback without keys or TLS."),
]
Auth = Annotated[
    str | None, typer.Option(help="API keys: auto (once there is one), keys or none. [auto]")
]
TlsCert = Annotated[str | None, typer.Option(help="Certificate chain of every listener, PEM.")]
TlsKey = Annotated[str | None, typer.Option(help="Its private key, PEM.")]
TlsClientCa = Annotated[
    str | None, typer.Option(help="Who signs the certificates that clients must show, PEM.")
]
AccessLog = Annotated[
    str | None, typer.Option(help="Where a line per call goes: a file, - is the log. [-]")
]
AccessLogShare = Annotated[
    float | None, typer.Option(help="Share of good calls that are logged. [0.01]")
]
AllowManagement = Annotated[
    bool | None,
    typer.Option("--allow-management", help="Serve Triton's load, trace, log and memory calls."),
]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error. [info]")]
LogFormat = Annotated[str | None, typer.Option(help="text or json. [text]")]
Database = Annotated[
    str | None, typer.Option(help="PostgreSQL URL of the store. [SQLite in the state folder]")
]
StorageUrl = Annotated[
    str | None,
    typer.Option("--storage", help="Where versions are kept: a folder, s3://, gs://, az://."),
]
Delivery = Annotated[
    str | None, typer.Option(help="How Tritons get versions: folder, agents or bucket. [folder]")
]
DeliveryFolder = Annotated[
    str | None, typer.Option(help="Where Tritons read published versions from.")
]
AllowCodeModels = Annotated[
    bool | None,
    typer.Option("--allow-code-models", help="Allow pushes that bring code: Python, .so files."),
]
Quarantine = Annotated[
    str | None,
    typer.Option(help="A throw-away Triton tries each version: auto, required or off. [auto]"),
]
QuarantineBytes = Annotated[
    int | None, typer.Option(help="Memory that a version may take there. [4 GiB]")
]
QuarantineTimeout = Annotated[
    float | None, typer.Option(help="Seconds that a version may take to load there. [300]")
]
Conversions = Annotated[
    int | None, typer.Option(help="Uploaded models that are converted at one time; 0: none. [1]")
]
ConversionMemory = Annotated[
    int | None, typer.Option(help="Memory that a conversion may take. [8 GiB]")
]
ConversionTimeout = Annotated[
    float | None, typer.Option(help="Seconds that a conversion may take. [1800]")
]
ContractInterval = Annotated[
    float | None, typer.Option(help="Seconds between two runs of a contract. [60]")
]
MinAvailable = Annotated[
    float | None,
    typer.Option(help="Share of a pool that goes on serving while a replica loads. [0.5]"),
]
WithoutSpare = Annotated[
    str | None, typer.Option(help="Load on the only replica that serves: warn, or refuse. [warn]")
]
PoolMemory = Annotated[
    list[str] | None, typer.Option(help="Memory of each replica, POOL=BYTES; repeatable.")
]
MachineFacts = Annotated[
    list[str] | None,
    typer.Option(help="What is known of machines, [POOL|REPLICA].FACT=VALUE; repeatable."),
]
KeepLoaded = Annotated[
    int | None, typer.Option(help="Newest versions that stay loaded without being used. [2]")
]
