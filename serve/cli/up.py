"""`servegate up`, `proxy`, `control`: start everything, or one plane."""

import dataclasses
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.output import say
from serve.cli.start_options import (
    AccessLog,
    AccessLogShare,
    AdminHost,
    AdminPort,
    AllowCodeModels,
    AllowManagement,
    Auth,
    Autoscale,
    ContractInterval,
    ConversionMemory,
    Conversions,
    ConversionTimeout,
    Database,
    Delivery,
    DeliveryFolder,
    Discover,
    GpuMetrics,
    GrpcPort,
    Host,
    HttpPort,
    Insecure,
    KedaPort,
    KeepLoaded,
    LogFormat,
    LogLevel,
    MachineFacts,
    MetricsPort,
    MinAvailable,
    ModelRepo,
    PoolMemory,
    Quarantine,
    QuarantineBytes,
    QuarantineTimeout,
    Replicas,
    Seed,
    State,
    StorageUrl,
    TlsCert,
    TlsClientCa,
    TlsKey,
    Triton,
    TritonArg,
    WithoutSpare,
    Workers,
)
from serve.core.errors import CannotStart
from serve.settings import Settings, load


def up(
    model_repo: ModelRepo = None,
    state: State = None,
    replicas: Replicas = None,
    autoscale: Autoscale = None,
    workers: Workers = None,
    host: Host = None,
    http_port: HttpPort = None,
    grpc_port: GrpcPort = None,
    metrics_port: MetricsPort = None,
    admin_host: AdminHost = None,
    admin_port: AdminPort = None,
    keda_port: KedaPort = None,
    triton: Triton = None,
    triton_arg: TritonArg = None,
    database: Database = None,
    storage: StorageUrl = None,
    delivery: Delivery = None,
    delivery_folder: DeliveryFolder = None,
    allow_code_models: AllowCodeModels = None,
    quarantine: Quarantine = None,
    quarantine_bytes: QuarantineBytes = None,
    quarantine_timeout: QuarantineTimeout = None,
    conversions: Conversions = None,
    conversion_memory: ConversionMemory = None,
    conversion_timeout: ConversionTimeout = None,
    contract_interval: ContractInterval = None,
    min_available: MinAvailable = None,
    without_spare: WithoutSpare = None,
    pool_memory: PoolMemory = None,
    machine_facts: MachineFacts = None,
    gpu_metrics: GpuMetrics = None,
    keep_loaded: KeepLoaded = None,
    seed: Seed = None,
    auth: Auth = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    access_log: AccessLog = None,
    access_log_share: AccessLogShare = None,
    allow_management: AllowManagement = None,
    insecure: Insecure = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Start the control plane, the gateway and local Tritons on this machine.

    Most options can also be set in servegate.toml or as environment variables; `servegate config
    explain` lists their names.

    Examples:

      servegate up --model-repo model_repo --replicas 2

      servegate up --model-repo model_repo --autoscale 1..4

      servegate up --triton 127.0.0.1:9000:9001:9002
    """
    flags = dict(locals())
    from serve.app.up import run_up

    settings = _settings(flags)
    _run(settings, run_up(settings, say=say, on_ready=_welcome))


def proxy(
    control: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="URL of the control plane (default: the one on this machine)."
        ),
    ] = None,
    state: State = None,
    workers: Workers = None,
    host: Host = None,
    http_port: HttpPort = None,
    grpc_port: GrpcPort = None,
    metrics_port: MetricsPort = None,
    seed: Seed = None,
    auth: Auth = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    access_log: AccessLog = None,
    access_log_share: AccessLogShare = None,
    allow_management: AllowManagement = None,
    insecure: Insecure = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Start a gateway that connects to a separate control plane.

    The gateway and the control plane need the same secret: set SERVEGATE_SECRET for both, or share
    the state folder.

    Example: servegate proxy --control http://control:8080 --workers 4
    """
    flags = dict(locals())
    from serve.app.proxy import run_proxy

    settings = _settings(flags)
    _run(settings, run_proxy(settings, say=say))


def control(
    model_repo: ModelRepo = None,
    state: State = None,
    admin_host: AdminHost = None,
    admin_port: AdminPort = None,
    keda_port: KedaPort = None,
    triton: Triton = None,
    discover: Discover = None,
    database: Database = None,
    storage: StorageUrl = None,
    delivery: Delivery = None,
    delivery_folder: DeliveryFolder = None,
    allow_code_models: AllowCodeModels = None,
    quarantine: Quarantine = None,
    quarantine_bytes: QuarantineBytes = None,
    quarantine_timeout: QuarantineTimeout = None,
    conversions: Conversions = None,
    conversion_memory: ConversionMemory = None,
    conversion_timeout: ConversionTimeout = None,
    contract_interval: ContractInterval = None,
    min_available: MinAvailable = None,
    without_spare: WithoutSpare = None,
    pool_memory: PoolMemory = None,
    machine_facts: MachineFacts = None,
    gpu_metrics: GpuMetrics = None,
    keep_loaded: KeepLoaded = None,
    auth: Auth = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Start a control plane for remote Tritons.

    Examples:

      servegate control --model-repo /models --triton gpu-1:8000:8001:8002

      servegate control --model-repo "" --discover kubernetes --delivery agents
    """
    flags = dict(locals())
    from serve.app.up import run_control

    settings = _settings(flags, starts_some=False)
    _run(settings, run_control(settings, say=say))


def _settings(flags: dict[str, Any], *, starts_some: bool = True) -> Settings:
    """`starts_some`: whether Tritons are started here where none are named."""
    if flags.get("triton_arg") is not None:
        flags["triton_args"] = flags["triton_arg"]
    explained = load(flags, os.environ, Path.cwd())
    settings = explained.settings
    are_elsewhere = settings.triton or (settings.discover and not starts_some)
    if are_elsewhere and explained.sources["model_repo"] == "default":
        return dataclasses.replace(settings, model_repo="")  # ask the Tritons what they hold
    return settings


def _run(settings: Settings, work: Coroutine[Any, Any, None]) -> None:
    import uvloop

    from serve.telemetry import configure_logging

    configure_logging(level=settings.log_level, form=settings.log_format)
    try:
        uvloop.run(work)
    except* OSError as errors:
        raise _cannot_start(errors) from errors


def _cannot_start(errors: BaseExceptionGroup[OSError]) -> CannotStart:
    """A disk or a file that refuses, as a sentence."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    file = first.filename if isinstance(first, OSError) else None
    what = f"cannot use {file}" if file else "the operating system returned an error"
    return CannotStart(what, why=str(first))


def _welcome(ready: Any) -> None:
    """What is served where, and what to do next."""
    settings = ready.settings
    served = [model["name"] for model in ready.models if model["state"] in ("ready", "partial")]
    asleep = [model["name"] for model in ready.models if model["state"] == "asleep"]
    sleep = f", {len(asleep)} asleep until their first call" if asleep else ""
    count, replicas = f"{len(served)} of {len(ready.models)}", len(settings.triton)
    say("")
    say(f"ready: {count} models on {replicas} replicas{sleep}")
    http = "https" if settings.tls_cert else "http"
    say(f"  HTTP     {http}://{settings.host}:{settings.http_port}/v2")
    say(f"  gRPC     {settings.host}:{settings.grpc_port}{' (TLS)' if settings.tls_cert else ''}")
    say(f"  metrics  {http}://{settings.host}:{settings.metrics_port}/metrics")
    say(f"  pages    {settings.control_url}/")
    if settings.keda_port:
        say(f"  KEDA     {settings.admin_host}:{settings.keda_port}")
    if served or asleep:
        say(f"try: servegate infer {(served or asleep)[0]} --input random")
    elif not ready.models:
        say("no models yet; push one with: servegate model push PATH NAME --wait")
    say("Ctrl-C stops everything")
