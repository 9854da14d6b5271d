"""Looks at the answers themselves, outside the timed runs: bodies, statuses and shares.

Load generators count what looks like success. Here each target carries random bodies to a model
that echoes them, and their digests are compared; over gRPC the status is looked at as well. And
the gateway's own counters say whether the split was kept over all calls of the timed runs.
"""

import hashlib
import http.client
import math
import random
from collections.abc import Mapping
from urllib.parse import urlsplit

import grpc
from tritonclient.grpc import service_pb2

from loadtests.bench.generators import GRPC_INFER
from loadtests.bench.keys import CREDENTIAL
from loadtests.bench.payloads import binary_request
from loadtests.bench.targets import Target

ECHO = "/v2/models/echo/infer"
HTTP_SIZES = (64, 16 << 10, 602112, 4 << 20, 64 << 20)  # bytes
GRPC_SIZES = (64, 64 << 10, 4 << 20)
DEVIATIONS = 5.0  # standard deviations that a share may be off: one right run in a million fails
PATIENCE = 30.0  # seconds for one call
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Wrong(Exception):
    """An answer is not what it has to be."""


def check_bodies(target: Target, *, largest: int, echoes_grpc: bool) -> None:
    """Compare what was sent with what came back, at every size; raises Wrong."""
    for size in HTTP_SIZES:
        if target.http and size <= largest:
            check_http(target, random.randbytes(size))
    for size in GRPC_SIZES:
        if target.grpc and size <= largest and (echoes_grpc or size == min(GRPC_SIZES)):
            check_grpc(target, random.randbytes(size), "echo" if echoes_grpc else "null")


def check_http(target: Target, raw: bytes) -> None:
    """One call; the answer has to end with the tensor's own bytes."""
    request = binary_request(raw)
    connection = http.client.HTTPConnection(urlsplit(target.http).netloc, timeout=PATIENCE)
    try:
        connection.request("POST", ECHO, request.body, dict(request.fields))
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Wrong(f"{target.name}: {error!r} for {len(raw)} bytes over HTTP") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Wrong(f"{target.name}: HTTP {answer.status} for {len(raw)} bytes: {body[:200]!r}")
    if digest(body[-len(raw) :]) != digest(raw):
        raise Wrong(f"{target.name}: another body came back over HTTP, of {len(raw)} bytes")


def check_grpc(target: Target, raw: bytes, model: str) -> None:
    """One call; its status has to be OK, and an echo has to be the tensor's own bytes."""
    message = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[raw])
    message.inputs.add(name="x", datatype="FP32", shape=[1, len(raw) // 4])
    with grpc.insecure_channel(urlsplit(target.grpc).netloc, OPTIONS) as channel:
        method = channel.unary_unary(
            GRPC_INFER,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        try:
            answer = method(message, metadata=(CREDENTIAL,), timeout=PATIENCE)
        except grpc.RpcError as error:
            raise Wrong(f"{target.name}: {error.code()} {error.details()}") from error
    if model == "echo" and digest(answer.raw_output_contents[0]) != digest(raw):
        raise Wrong(f"{target.name}: another body came back over gRPC, of {len(raw)} bytes")


def check_shares(counts: Mapping[int, int], weights: Mapping[int, int]) -> None:
    """Each version's calls have to be within the bounds of a fair draw; raises Wrong."""
    calls, whole = sum(counts.values()), sum(weights.values())
    if not calls:
        raise Wrong("the gateway has counted no call")
    for version, weight in weights.items():
        expected, share = calls * weight / whole, weight / whole
        bound = DEVIATIONS * math.sqrt(calls * share * (1 - share)) + 1
        if abs(counts.get(version, 0) - expected) > bound:
            raise Wrong(
                f"version {version} got {counts.get(version, 0)} of {calls} calls, "
                f"not {expected:.0f} ± {bound:.0f}"
            )


def digest(body: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(body).hexdigest()
