"""What the clients of the `kserve` package say: run by `test_kserve_client.py` in `.venv-kserve`.

Usage: kserve_driver.py HTTP GRPC (each host:port). A JSON object of all answers goes to stdout.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferRequest,
    InferResponse,
    RESTConfig,
)
from kserve.protocol.grpc import grpc_predict_v2_pb2 as messages
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from kserve.protocol.infer_type import RequestedOutput

LISTS: dict[str, list[Any]] = {
    "FP32": [0.5, -1.5],
    "INT64": [-(2**63), 2**63 - 1],
    "BYTES": ["", "naïve \U0001f40d"],
}
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "FP32": np.array([0.5, -1.5], np.float32),
    "FP16": np.array([0.5, -65504], np.float16),
    "INT64": np.array([-(2**63), 2**63 - 1], np.int64),
    "BYTES": np.array([b"", "naïve \U0001f40d".encode()], np.object_),
}
PATIENCE = 30.0  # seconds; a bound


def listed(values: dict[str, list[Any]]) -> list[InferInput]:
    return [InferInput(kind, [len(held)], kind, list(held)) for kind, held in values.items()]


def binary() -> list[InferInput]:
    """Inputs whose values are raw bytes, with FP16, which JSON cannot say."""
    made = []
    for kind, values in ARRAYS.items():
        one = InferInput(kind, list(values.shape), kind)
        one.set_data_from_numpy(values, binary_data=True)
        made.append(one)
    return made


def request(inputs: list[InferInput], *, model: str = "mirror", **more: Any) -> InferRequest:
    return InferRequest(model, inputs, request_id="my-id", **more)


def told(answer: InferResponse) -> dict[str, Any]:
    outputs = {}
    for output in answer.outputs:
        values = [
            one.decode() if isinstance(one, bytes) else one for one in output.as_numpy().tolist()
        ]
        outputs[output.name] = [output.datatype, list(output.shape), values]
    return {"id": answer.id, "model": answer.model_name, "outputs": outputs}


async def failed(asked: Awaitable[object]) -> list[Any]:
    """The status, and the client's own words."""
    try:
        return ["no error", str(await asked)]
    except httpx.HTTPStatusError as error:
        return [error.response.status_code, str(error)]
    except grpc.aio.AioRpcError as error:
        return [error.code().name, error.details()]


async def settled(ask: Callable[[], Awaitable[bool]]) -> bool:
    """Ask until it is true: other tests add models, and until they are loaded it is not."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if await ask():
                return True
        except httpx.HTTPStatusError:
            pass
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.1)


async def inferred(infer: Callable[..., Awaitable[InferResponse]]) -> dict[str, Any]:
    """Calls that both clients can make, of a version or a label where one is named."""
    lists = listed(LISTS)
    other = InferInput("other", [1], "FP32", [1.0])
    return {
        "lists": told(await infer(request(lists))),
        "version 1": told(await infer(request(lists), "1")),
        "label": told(await infer(request(lists), "stable")),
        "unknown model": await failed(infer(request(lists, model="nothing"))),
        "unknown version": await failed(infer(request(lists), "9")),
        "unknown input": await failed(infer(request([other]))),
    }


async def over_rest(base: str) -> dict[str, Any]:
    """Everything that `InferenceRESTClient` can ask over v2."""
    async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=PATIENCE)) as client:

        async def infer(asked: InferRequest, version: str = "") -> InferResponse:
            path = asked.model_name + (f"/versions/{version}" if version else "")
            return await client.infer(base, asked, model_name=path)

        outputs = [RequestedOutput(f"out_{kind}", {"binary_data": True}) for kind in ARRAYS]
        return {
            "live": await client.is_server_live(base),
            "ready": await settled(lambda: client.is_server_ready(base)),
            "model ready": await client.is_model_ready(base, "mirror"),
            "version ready": await client.is_model_ready(base, "mirror/versions/1"),
            "label ready": await client.is_model_ready(base, "mirror/versions/stable"),
            "unknown label ready": await client.is_model_ready(base, "mirror/versions/other"),
            "unknown ready": await client.is_model_ready(base, "nothing"),
            "arrays": told(await infer(request(binary(), request_outputs=outputs))),
            **await inferred(infer),
        }


async def over_grpc(address: str) -> dict[str, Any]:
    """Everything that `InferenceGRPCClient` can ask, and metadata by KServe's own messages."""
    async with InferenceGRPCClient(address, timeout=PATIENCE) as client:

        async def infer(asked: InferRequest, version: str = "") -> InferResponse:
            asked.model_version = version or None
            return await client.infer(asked)

        said = {
            "live": await client.is_server_live(),
            "ready": await settled(client.is_server_ready),
            "model ready": await client.is_model_ready("mirror"),
            "unknown ready": await client.is_model_ready("nothing"),
            "arrays": told(await client.infer(request(binary()))),
            **await inferred(infer),
        }
    async with grpc.aio.insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        asked = messages.ModelMetadataRequest(name="mirror")
        model = await stub.ModelMetadata(asked, timeout=PATIENCE)
        said["metadata"] = {
            "model": model.name,
            "versions": sorted(model.versions),
            "inputs": {one.name: [one.datatype, list(one.shape)] for one in model.inputs},
        }
    return said


async def main() -> None:
    http, rpc = sys.argv[1:]
    said = {"rest": await over_rest(f"http://{http}"), "grpc": await over_grpc(rpc)}
    print(json.dumps(said))


logging.disable()  # the package logs every error with its traceback
asyncio.run(main())
