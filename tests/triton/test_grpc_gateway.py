"""The gRPC listener in front of a real Triton: what a client sees is what Triton says."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import uvloop
from builders import DataPlane, snapshot, target, until, view
from grpc_wire import LIMITS as SMALL
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.kserve import KServeGrpc
from serve.triton.grpc_pool import GrpcPool

pytestmark = pytest.mark.triton

LIMITS = dataclasses.replace(SMALL, connections=1000)  # a hundred clients come and go
T = TypeVar("T")
PATIENCE = 60.0  # seconds; a bound
UNBOUNDED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
CONFIG = """
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 2 } ]
"""
ECHO = """
import triton_python_backend_utils as utils
class TritonPythonModel:
    def execute(self, requests):
        xs = [utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [utils.InferenceResponse([utils.Tensor("y", x)]) for x in xs]
"""
REPEAT = """
import triton_python_backend_utils as utils
FINAL = utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
class TritonPythonModel:
    def execute(self, requests):
        for one in requests:
            x = utils.get_input_tensor_by_name(one, "x").as_numpy()
            sender = one.get_response_sender()
            for number in range(int(x[0])):
                sender.send(utils.InferenceResponse([utils.Tensor("y", x + number)]))
            sender.send(flags=FINAL)
"""


@pytest.fixture(scope="module")
def triton(bare_triton_factory: Callable[..., Any]) -> Any:
    """A Triton with a model that echoes and one that answers as often as it is told."""
    server = bare_triton_factory()
    for name, code, more in (
        ("echo", ECHO, ""),
        ("repeat", REPEAT, "model_transaction_policy { decoupled: true }"),
    ):
        folder = server.repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(code)
        (folder.parent / "config.pbtxt").write_text(CONFIG + more)
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        for name in ("echo", "repeat"):
            client.load_model(name)
    return server


def through(triton: Any, act: Callable[[str], T], *, cancel: str = "auto") -> T:
    """Act as clients, in other threads, of a listener in front of this Triton."""

    async def serve() -> T:
        plane = DataPlane(known(int(triton.grpc.rpartition(":")[2])))
        pool = GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=plane.clock)
        listener = KServeGrpc(
            plane.gateway,
            pool,
            limits=LIMITS,
            cancel=cancel,
            clock=plane.clock,
            is_draining=lambda: False,
        )
        server = await asyncio.get_running_loop().create_server(listener.connection, "127.0.0.1", 0)
        async with asyncio.timeout(PATIENCE):
            told = await asyncio.to_thread(act, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await until(
                lambda: listener.calls == pool.streams == pool.board.held == plane.loads.total == 0,
                within=PATIENCE,
            )
        listener.close()
        pool.close()
        server.close()
        return told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve())


def known(port: int) -> Snapshot:
    models = [view(target(1, "a", model=name), name=name) for name in ("echo", "repeat")]
    named = snapshot(*models)
    return Snapshot(1, named.models, MappingProxyType({"a": Replica("a", "127.0.0.1", 1, port, 1)}))


def tensor(*values: float) -> triton_grpc.InferInput:
    made = triton_grpc.InferInput("x", [len(values)], "FP32")
    made.set_data_from_numpy(np.array(values, np.float32))
    return made


@pytest.mark.parametrize("count", [1, 5_000, 300_000, 15_000_000])
def test_tensors_come_back_unchanged(triton: Any, count: int) -> None:
    values = np.arange(count, dtype=np.float32)

    def act(address: str) -> bool:
        asked = triton_grpc.InferInput("x", [count], "FP32")
        asked.set_data_from_numpy(values)
        with triton_grpc.InferenceServerClient(address) as client:
            answer = client.infer("echo", [asked], request_id="7")
            return bool((answer.as_numpy("y") == values).all())

    assert through(triton, act)


def test_questions_and_errors_are_those_of_triton(triton: Any) -> None:
    def act(address: str) -> list[str]:
        said = []
        with triton_grpc.InferenceServerClient(address) as client:
            said.append(str(client.get_server_metadata()))
            said.append(str(client.get_model_metadata("echo")))
            said.append(str(client.get_model_config("echo")))
            said.append(str(client.is_model_ready("echo")))
            said.append(str(client.is_model_ready("nothing")))
            for model, inputs in (("nothing", [tensor(1)]), ("echo", [])):
                with pytest.raises(InferenceServerException) as caught:
                    client.infer(model, inputs)
                said.append(f"{caught.value.status()} {caught.value.message()}")
        return said

    assert through(triton, act) == act(triton.grpc)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_calls_are_answered(triton: Any, algorithm: str) -> None:
    def act(address: str) -> list[float]:
        with triton_grpc.InferenceServerClient(address) as client:
            answer = client.infer("echo", [tensor(1, 2)], compression_algorithm=algorithm)
            return [float(value) for value in answer.as_numpy("y")]

    assert through(triton, act) == [1.0, 2.0]


def test_a_decoupled_model_answers_as_often_as_it_does_directly(triton: Any) -> None:
    """Together with other models, too: directly, such a stream makes Triton 2.51 abort."""

    def asked(models: str) -> Iterator[service_pb2.ModelInferRequest]:
        for number, model in enumerate(("repeat", "echo", "nothing", "repeat", "repeat")):
            if model not in models:
                continue
            request = service_pb2.ModelInferRequest(
                model_name=model, model_version="1", id=str(number)
            )
            request.parameters["triton_enable_empty_final_response"].bool_param = True
            request.inputs.add(name="x", datatype="FP32", shape=[2])
            request.raw_input_contents.append(np.array([number + 1, 5], np.float32).tobytes())
            yield request

    def act(address: str, models: str = "repeat echo nothing") -> list[tuple[str, ...]]:
        with grpc.insecure_channel(address, options=UNBOUNDED) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            said = []
            for one in stub.ModelStreamInfer(asked(models), timeout=20):
                answer = one.infer_response
                outputs = b"".join(answer.raw_output_contents).hex()
                said.append((answer.id, one.error_message, answer.model_version, outputs))
            return sorted(said)

    directly = act(triton.grpc, "repeat") + act(triton.grpc, "echo nothing")
    assert len(directly) > 7
    for _ in range(20):
        assert through(triton, act) == sorted(directly)


def test_hostile_encodings_cost_no_other_call_its_connection(triton: Any) -> None:
    """Values pass as they are encoded; what Triton refuses must not close what others share."""

    def act(address: str) -> list[str]:
        said = []
        with grpc.insecure_channel(address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for metadata in ((("x-bin", b"\x00" * 900),), (("x", "~" * 900),)):
                stub.ServerMetadata(service_pb2.ServerMetadataRequest(), metadata=metadata)
                said.append("fine")
        return said

    assert through(triton, act) == ["fine", "fine"]


def test_triton_survives_clients_that_leave_again_and_again(triton: Any) -> None:
    def storm(address: str, number: int) -> None:
        with grpc.insecure_channel(address, options=(("x", number),)) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.ModelInferRequest(model_name="echo")
            request.inputs.add(name="x", datatype="FP32", shape=[1000])
            request.raw_input_contents.append(bytes(4000))
            pending = [stub.ModelInfer.future(request) for _ in range(5)]
            stream = stub.ModelStreamInfer(iter([request] * 3))
            next(stream, None)
            stream.cancel()
            for one in pending[number % 5 :]:
                one.cancel()

    def act(address: str) -> bool:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: storm(address, number), range(100)))
        with triton_grpc.InferenceServerClient(address) as client:
            return bool(client.infer("echo", [tensor(1)]).as_numpy("y")[0] == 1)

    assert through(triton, act)
    assert triton.process.poll() is None
