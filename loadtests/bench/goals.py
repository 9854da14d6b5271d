"""What the gateway wants to reach, relative to nginx in the same run."""

from collections.abc import Mapping
from types import MappingProxyType

CPU: Mapping[str, float] = MappingProxyType(
    {
        "http-64B": 1.6,
        "http-64B-json": 1.6,
        "http-64B-trace": 1.6,
        "http-16KiB": 1.6,
        "http-16KiB-json": 1.6,
        "http-602KB": 1.3,
        "http-4MiB": 0.8,
        "http-64MiB": 0.7,
        "http-answer-602KB": 1.3,
        "http-answer-4MiB": 0.8,
        "http-answer-64MiB": 0.7,
        "grpc-64B": 0.7,
        "grpc-64B-cheap": 0.7,
        "grpc-64B-trace": 1.5,
        "grpc-64B-clients-trace": 1.5,
        "grpc-64KiB": 1.2,
        "grpc-4MiB": 1.5,
    }
)  # CPU time per call: at most
RATE: Mapping[str, float] = MappingProxyType(
    {"http-64B": 0.8, "http-64B-json": 0.8, "http-16KiB": 0.8, "http-16KiB-json": 0.8}
)  # calls a second: at least
ADDED_P50: Mapping[str, float] = MappingProxyType(
    {"http-64B": 2.5, "http-16KiB": 2.5, "grpc-64B": 1.0, "grpc-64B-cheap": 1.0}
)  # added to the median latency: at most
FIRST_WORKER, FURTHER_WORKER, BODY = 60.0, 15.0, 2.0  # MiB: at most; BODY is of 1 GiB in flight
