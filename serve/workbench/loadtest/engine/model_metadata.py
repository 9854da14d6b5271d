"""What a model takes, asked of the server by a locust user: its metadata, over HTTP or gRPC.

It blocks only its greenlet, because locust has patched the standard library.
"""

import json
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError

from serve.core.calls import Verb
from serve.core.errors import NotFound, ServegateError, Unavailable
from serve.trust import trust
from serve.wire.kserve_grpc import method_of
from serve.workbench.loadtest.plan import Lane, LaneProtocol

TIMEOUT = 10.0  # seconds
Specs = Mapping[str, tuple[str, tuple[int, ...]]]
"""Datatype and shape of each input; -1 is any length, and a batch where it comes first."""


def inputs_of(lane: Lane, model: str, version: str) -> Specs:
    """The model's inputs. `lane` says where and how to call; `Unavailable` when nobody answers."""
    if lane.protocol in (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM):
        page = _by_grpc(lane, model, version)
    else:
        page = _by_http(lane, model, version)
    try:
        return {
            str(one["name"]): (str(one["datatype"]), tuple(map(int, one["shape"])))
            for one in page["inputs"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ServegateError(
            f"the metadata of model '{model}' cannot be read",
            why=str(page)[:200],
            try_this="use the address of a data port, not of the admin API",
        ) from error


def _by_http(lane: Lane, model: str, version: str) -> Any:
    path = lane.path + (f"/versions/{version}" if version else "")
    url = f"{'https' if lane.tls else 'http'}://{lane.address}{path}"
    request = urllib.request.Request(url, headers=dict(lane.headers))
    context = trust() if lane.tls else None
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT, context=context) as answer:
            return json.loads(answer.read())
    except HTTPError as error:
        text = error.read(300).decode(errors="replace")
        raise NotFound(
            f"{url} responded with status {error.code}",
            why=text,
            try_this="use another model or host",
        ) from error
    except (URLError, OSError, ValueError) as error:
        raise Unavailable(f"{url} does not respond", why=str(error)) from error


def _by_grpc(lane: Lane, model: str, version: str) -> Any:
    import grpc
    from tritonclient.grpc import service_pb2

    from serve.workbench.loadtest.engine.grpc_channels import lines
    from serve.workbench.loadtest.engine.grpc_requests import metadata_of

    asked = service_pb2.ModelMetadataRequest(name=model, version=version)
    (line,) = lines(lane, 1, lambda channel: channel.unary_unary(method_of(Verb.METADATA)))[:1]
    try:
        answer = line.call(asked.SerializeToString(), timeout=TIMEOUT, metadata=metadata_of(lane))
    except grpc.RpcError as error:
        why = f"{error.code().name}: {error.details()}"
        raise Unavailable(
            f"{lane.address} does not return the metadata of model '{model}'", why=why
        ) from error
    finally:
        line.close()
    told = service_pb2.ModelMetadataResponse.FromString(answer)
    return {
        "inputs": [
            {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}
            for one in told.inputs
        ]
    }
