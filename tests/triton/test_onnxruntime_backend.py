"""The onnxruntime backend in a real Triton: what it completes, refuses, batches and answers."""

import importlib.util
import queue
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from harness import until
from tritonclient.utils import InferenceServerException

from .onnx_models import Model, config, identity, node, onnx_file, sequence_of, tensor

pytestmark = [pytest.mark.triton, pytest.mark.slow]

PATIENCE = 30.0  # seconds; a bound for what takes milliseconds
HOLD = "dynamic_batching { max_queue_delay_microseconds: 5000000 }"  # until the batch is full

VALUES: Mapping[str, np.ndarray[Any, Any]] = {
    "BOOL": np.array([[True, False, True]]),
    "UINT8": np.array([[0, 1, 255]], np.uint8),
    "UINT16": np.array([[0, 1, 2**16 - 1]], np.uint16),
    "UINT32": np.array([[0, 1, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 1, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 0, 127]], np.int8),
    "INT16": np.array([[-(2**15), 0, 2**15 - 1]], np.int16),
    "INT32": np.array([[-(2**31), 0, 2**31 - 1]], np.int32),
    "INT64": np.array([[-(2**63), 0, 2**63 - 1]], np.int64),
    "FP16": np.array([[-65504, 0.1, 6e-8]], np.float16),
    "BF16": np.array([[-1.5, 0.0, 3e38]], ml_dtypes.bfloat16),
    "FP32": np.array([[-1e38, 0.1, 1e-45]], np.float32),
    "FP64": np.array([[-1e308, 0.1, 5e-324]], np.float64),
    "STRING": np.array([["", "naïve \U0001f40d", "with\0zero"]], np.object_),
}

IDENTITY = identity("FP32", "batch", 3)
XY = ("x FP32 [3]", "y FP32 [3]")
SCALED = {
    factor: onnx_file(
        [tensor("x", "FP32", "batch", 3)],
        [tensor("y", "FP32", "batch", 3)],
        node("Mul", "x factor", "y"),
        constants={"factor": np.array(factor, np.float32)},
    )
    for factor in (1, 2, 3)
}
LOOKUP = onnx_file(
    [tensor("index", "INT64", "batch", 1)],
    [tensor("value", "FP32", "batch", 1)],
    node("Gather", "table index", "value"),
    constants={"table": np.array([10, 20, 30, 40], np.float32)},
)
ARITHMETIC = onnx_file(
    [tensor("a", "FP32", "batch", "n"), tensor("b", "FP32", "batch", "n")],
    [tensor("difference", "FP32", "batch", "n"), tensor("quotient", "FP32", "batch", "n")],
    node("Sub", "a b", "difference"),
    node("Div", "a b", "quotient"),
)
WITH_DEFAULT = onnx_file(
    [tensor("x", "FP32", 3), tensor("offset", "FP32", 3)],
    [tensor("y", "FP32", 3)],
    node("Add", "x offset", "y"),
    constants={"offset": np.array([1, 2, 3], np.float32)},
)
FLATTENED = onnx_file(
    [tensor("x", "FP32", "batch", 3)],
    [tensor("y", "FP32", "rows", 1)],
    node("Reshape", "x column", "y"),
    constants={"column": np.array([-1, 1])},
)
STARTS = onnx_file(
    [tensor("x", "FP32", "batch", 1), tensor("start", "FP32", "batch", 1)],
    [tensor("y", "FP32", "batch", 1)],
    node("Add", "x start", "y"),
)
SEQUENCE = """sequence_batching { control_input { name: "start" control {
    kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 100] } } }"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


def accelerator(place: str, name: str, **parameters: str) -> str:
    entries = "".join(f'parameters {{ key: "{k}" value: "{v}" }}' for k, v in parameters.items())
    return (
        f"optimization {{ execution_accelerators {{ {place}_execution_accelerator "
        f'{{ name: "{name}" {entries} }} }} }}'
    )


# --- Models that load ---------------------------------------------------------------------------

MODELS: dict[str, Model] = {
    **{
        f"as_{data_type}": Model(
            {1: identity(data_type, "batch", 3)},
            config(f"x {data_type} [3]", f"y {data_type} [3]"),
        )
        for data_type in VALUES
    },
    "bare": Model({1: IDENTITY}, None),
    "bare_fixed": Model({1: identity("INT32", 1, 3)}, None),
    "bare_rows": Model({1: identity("BF16", "batch")}, None),
    "bare_scalar": Model({1: identity("FP32")}, None),
    "no_outputs": Model({1: IDENTITY}, config("x FP32 [3]", "", max_batch_size=16)),
    "unbatched": Model(
        {1: identity("FP32", "rows", 3)},
        config("x FP32 [-1, 3]", "y FP32 [-1, 3]", max_batch_size=0),
    ),
    "versions": Model(
        SCALED,
        config(*XY, "version_policy { all {} }", 'default_model_filename: "w/scale.onnx"'),
        filename="w/scale.onnx",
    ),
    "folder": Model({1: IDENTITY}, config(*XY), filename="model.onnx/model.onnx"),
    "held": Model({1: SCALED[2]}, config(*XY, HOLD, max_batch_size=12)),
    "lookup": Model(
        {1: LOOKUP}, config("index INT64 [1]", "value FP32 [1]", HOLD, max_batch_size=4)
    ),
    "arithmetic": Model(
        {1: ARITHMETIC},
        config("a FP32 [-1]; b FP32 [-1]", "difference FP32 [-1]; quotient FP32 [-1]"),
    ),
    "flattened": Model({1: FLATTENED}, config("x FP32 [3]", "y FP32 [1]")),
    "optional": Model(
        {1: WITH_DEFAULT},
        config("x FP32 [3]; offset FP32 [3] optional: true", "y FP32 [3]", max_batch_size=0),
    ),
    "sequence": Model({1: STARTS}, config("x FP32 [1]", "y FP32 [1]", SEQUENCE)),
    "tuned": Model(
        {1: IDENTITY},
        config(
            *XY,
            parameter("intra_op_thread_count", "1"),
            parameter("inter_op_thread_count", "1"),
            parameter("execution_mode", "1"),
            parameter("enable_mem_arena", "true"),
            parameter("enable_mem_pattern", "0"),
            parameter("memory.enable_memory_arena_shrinkage", "cpu:0"),
            parameter("session.use_device_allocator_for_initializers", "1"),
            "optimization { graph { level: -1 } }",
        ),
    ),
}

# --- Models that do not, and why ----------------------------------------------------------------

REFUSED: dict[str, tuple[Model, str]] = {
    "wrong_name": (
        Model({1: IDENTITY}, config("z FP32 [3]", "y FP32 [3]")),
        "the configuration has no input 'x', the model file expects TYPE_FP32 [batch,3]",
    ),
    "extra_input": (
        Model({1: IDENTITY}, config("x FP32 [3]; z FP32 [3]", "y FP32 [3]")),
        "the model file has no input 'z', only x",
    ),
    "extra_output": (
        Model({1: IDENTITY}, config("x FP32 [3]", "y FP32 [3]; z FP32 [3]")),
        "the model file has no output 'z', only y",
    ),
    "wrong_type": (
        Model({1: IDENTITY}, config("x INT32 [3]", "y FP32 [3]")),
        "input 'x' is TYPE_INT32 [-1,3] (max_batch_size 8) in the configuration, "
        "but TYPE_FP32 [batch,3] in the model file",
    ),
    "wrong_dims": (
        Model({1: IDENTITY}, config("x FP32 [3]", "y FP32 [4]")),
        "output 'y' is TYPE_FP32 [-1,4] (max_batch_size 8) in the configuration, "
        "but TYPE_FP32 [batch,3] in the model file",
    ),
    "narrowed_output": (
        Model({1: ARITHMETIC}, config("a FP32 [2]; b FP32 [2]", "quotient FP32 [2]")),
        "output 'quotient' is TYPE_FP32 [-1,2] (max_batch_size 8) in the configuration, "
        "but TYPE_FP32 [batch,n] in the model file",
    ),
    "fixed_batch": (
        Model({1: identity("FP32", 1, 3)}, config(*XY)),
        "max_batch_size is 8, but input 'x' is TYPE_FP32 [1,3] in the model file: "
        "set max_batch_size to 0, or export the model with a free first dimension",
    ),
    "fixed_batch_bare": (
        Model({1: identity("FP32", 1, 3)}, "max_batch_size: 4"),
        "max_batch_size is 4, but input 'x' is TYPE_FP32 [1,3] in the model file",
    ),
    "mandatory_default": (
        Model(
            {1: WITH_DEFAULT}, config("x FP32 [3]; offset FP32 [3]", "y FP32 [3]", max_batch_size=0)
        ),
        "input 'offset' has a default in the model file: make it optional",
    ),
    "optional_without_default": (
        Model(
            {1: identity("FP32", 3)},
            config("x FP32 [3] optional: true", "y FP32 [3]", max_batch_size=0),
        ),
        "input 'x' is optional, but has no default in the model file",
    ),
    "no_file": (
        Model({1: IDENTITY}, config(*XY), filename="other.onnx"),
        "the model's directory has no file '1/model.onnx'",
    ),
    "not_onnx": (
        Model({1: b"not a model"}, config(*XY)),
        "ONNX Runtime cannot load 'model.onnx': Protobuf parsing failed.",
    ),
    "not_a_tensor": (
        Model({1: sequence_of("FP32", "batch", 3)}, config(*XY)),
        "output 'y' is a seq(tensor(float)), which is not a data type of Triton",
    ),
    "decoupled": (
        Model({1: IDENTITY}, config(*XY, "model_transaction_policy { decoupled: true }")),
        "'decoupled' is not supported by the Python onnxruntime backend",
    ),
    "ragged": (
        Model({1: IDENTITY}, config("x FP32 [3] allow_ragged_batch: true", "y FP32 [3]")),
        "'allow_ragged_batch' is not supported by the Python onnxruntime backend",
    ),
    "bad_threads": (
        Model({1: IDENTITY}, config(*XY, parameter("intra_op_thread_count", "two"))),
        "parameter 'intra_op_thread_count' has the value 'two', it must be an integer, 0 or more",
    ),
    "bad_mode": (
        Model({1: IDENTITY}, config(*XY, parameter("execution_mode", "2"))),
        "parameter 'execution_mode' has the value '2', it must be 0 or 1",
    ),
    "bad_level": (
        Model({1: IDENTITY}, config(*XY, "optimization { graph { level: 7 } }")),
        "parameter 'optimization.graph.level' has the value '7', it must be -1 or 0 or 1 or 2",
    ),
    "bad_shrinkage": (
        Model({1: IDENTITY}, config(*XY, parameter("memory.enable_memory_arena_shrinkage", "yes"))),
        "parameter 'memory.enable_memory_arena_shrinkage' has the value 'yes', "
        "it must be a list of devices such as cpu:0;gpu:0",
    ),
    "no_tensorrt": (
        Model({1: IDENTITY}, config(*XY, accelerator("gpu", "tensorrt", precision_mode="FP16"))),
        "the GPU execution accelerator 'tensorrt' needs TensorrtExecutionProvider",
    ),
    "no_openvino": (
        Model({1: IDENTITY}, config(*XY, accelerator("cpu", "openvino"))),
        "the CPU execution accelerator 'openvino' needs OpenVINOExecutionProvider",
    ),
    "unknown_accelerator": (
        Model({1: IDENTITY}, config(*XY, accelerator("gpu", "abacus"))),
        "unknown Execution Accelerator 'abacus' is requested",
    ),
    "unknown_parameter": (
        Model({1: IDENTITY}, config(*XY, accelerator("gpu", "tensorrt", precision="FP16"))),
        "unknown parameter 'precision' is provided for TensorRT Execution Accelerator",
    ),
}


# --- The server ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Served:
    """A Triton that was asked to load all these models; `refusals` says what came of it."""

    http: triton_http.InferenceServerClient
    grpc: triton_grpc.InferenceServerClient
    refusals: Mapping[str, str]

    def config(self, model: str) -> dict[str, Any]:
        return dict(self.http.get_model_config(model))

    def ask(
        self, model: str, version: str = "", /, **inputs: Any
    ) -> dict[str, np.ndarray[Any, Any]]:
        """All outputs, over HTTP with binary tensors."""
        tensors = [http_input(name, value) for name, value in inputs.items()]
        result = self.http.infer(model, tensors, version)
        names = [output["name"] for output in result.get_response()["outputs"]]
        return {name: result.as_numpy(name) for name in names}

    def ask_together(
        self, model: str, requests: Sequence[Mapping[str, Any]], output: str
    ) -> list[Any]:
        """Send all requests before reading an answer: the output of each, or its error's text."""
        arrived: queue.Queue[tuple[int, Any, InferenceServerException | None]] = queue.Queue()
        for index, inputs in enumerate(requests):
            self.grpc.async_infer(
                model,
                [grpc_input(name, value) for name, value in inputs.items()],
                lambda result, error, index=index: arrived.put((index, result, error)),
            )
        answers = {}
        for _ in requests:
            index, result, error = arrived.get(timeout=PATIENCE)
            answers[index] = error.message() if error else result.as_numpy(output)
        return [answers[index] for index in range(len(requests))]

    def counts(self, model: str) -> tuple[int, int]:
        """How many inferences and how many executions there were."""
        statistics = self.grpc.get_inference_statistics(model).model_stats[0]
        return statistics.inference_count, statistics.execution_count


def http_input(name: str, value: Any) -> triton_http.InferInput:
    return filled(triton_http.InferInput, name, value)


def grpc_input(name: str, value: Any) -> triton_grpc.InferInput:
    return filled(triton_grpc.InferInput, name, value)


def filled(kind: Callable[[str, list[int], str], Any], name: str, value: Any) -> Any:
    array = np.asarray(value)
    given = kind(name, list(array.shape), DATA_TYPES[array.dtype.name])
    given.set_data_from_numpy(array)
    return given


DATA_TYPES = {array.dtype.name: name for name, array in VALUES.items()} | {"object": "BYTES"}


@pytest.fixture(scope="module")
def served(bare_triton_factory: Callable[..., Any]) -> Iterator[Served]:
    server = bare_triton_factory(
        "--backend-config=onnxruntime,default-max-batch-size=6", "--model-load-thread-count=16"
    )
    models = MODELS | {name: model for name, (model, _) in REFUSED.items()}
    for name, model in models.items():
        model.write(server.repository / name)
    http = triton_http.InferenceServerClient(server.http, network_timeout=PATIENCE)
    with triton_grpc.InferenceServerClient(server.grpc) as grpc:

        def load(name: str) -> str:
            try:
                grpc.load_model(name, client_timeout=2 * PATIENCE)
            except InferenceServerException as error:
                return str(error.message())
            return ""

        with ThreadPoolExecutor(16) as threads:
            refusals = dict(zip(models, threads.map(load, models), strict=True))
        yield Served(http, grpc, refusals)
        http.close()


# --- Data types ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", VALUES)
def test_every_data_type_comes_back_unchanged_over_http(served: Served, data_type: str) -> None:
    sent = VALUES[data_type]
    assert same(served.ask(f"as_{data_type}", x=sent)["y"], sent)


@pytest.mark.parametrize("data_type", VALUES)
def test_every_data_type_comes_back_unchanged_over_grpc(served: Served, data_type: str) -> None:
    sent = VALUES[data_type]
    result = served.grpc.infer(f"as_{data_type}", [grpc_input("x", sent)])
    assert same(result.as_numpy("y"), sent)


@pytest.mark.parametrize("data_type", ["BF16", "FP32", "STRING"])
def test_a_batch_of_several_rows_keeps_their_order(served: Served, data_type: str) -> None:
    rows = np.concatenate([VALUES[data_type], VALUES[data_type][:, ::-1]])
    assert same(served.ask(f"as_{data_type}", x=rows)["y"], rows)


def same(answer: np.ndarray[Any, Any] | None, sent: np.ndarray[Any, Any]) -> bool:
    if answer is None or answer.shape != sent.shape:
        return False
    if sent.dtype == np.object_:
        return [item.decode() for item in answer.flat] == list(sent.flat)
    return answer.dtype == sent.dtype and answer.tobytes() == sent.tobytes()


def test_bytes_that_are_no_text_are_refused_by_input_and_element(served: Served) -> None:
    with pytest.raises(InferenceServerException) as caught:
        served.ask("as_STRING", x=np.array([[b"a", b"\xff", b"c"]], np.object_))
    assert caught.value.status() == "400"
    assert "as_STRING version 1: input 'x' is not UTF-8 at element 1" in caught.value.message()


# --- Completing a configuration -----------------------------------------------------------------


def test_a_model_without_a_configuration_is_completed_from_its_file(served: Served) -> None:
    completed = served.config("bare")
    assert (completed["backend"], completed["platform"]) == ("onnxruntime", "onnxruntime_onnx")
    assert completed["max_batch_size"] == 6  # as the server was told
    assert "dynamic_batching" in completed
    assert tensors(completed) == [("x", "TYPE_FP32", [3]), ("y", "TYPE_FP32", [3])]
    assert same(served.ask("bare", x=VALUES["FP32"])["y"], VALUES["FP32"])


def test_a_fixed_first_dimension_means_no_batching_and_full_dims(served: Served) -> None:
    completed = served.config("bare_fixed")
    assert completed["max_batch_size"] == 0
    assert "dynamic_batching" not in completed
    assert tensors(completed) == [("x", "TYPE_INT32", [1, 3]), ("y", "TYPE_INT32", [1, 3])]
    assert same(served.ask("bare_fixed", x=VALUES["INT32"])["y"], VALUES["INT32"])


def test_one_number_per_row_is_completed_with_a_reshape(served: Served) -> None:
    completed = served.config("bare_rows")
    assert tensors(completed) == [("x", "TYPE_BF16", [1]), ("y", "TYPE_BF16", [1])]
    column = VALUES["BF16"].reshape(3, 1)
    assert same(served.ask("bare_rows", x=column)["y"], column)


def test_a_scalar_is_completed_and_served_as_one_element(served: Served) -> None:
    assert tensors(served.config("bare_scalar")) == [
        ("x", "TYPE_FP32", [1]),
        ("y", "TYPE_FP32", [1]),
    ]
    one = np.array([2.5], np.float32)
    assert same(served.ask("bare_scalar", x=one)["y"], one)


def test_what_the_configuration_says_stays_when_the_rest_is_completed(served: Served) -> None:
    completed = served.config("no_outputs")
    assert completed["max_batch_size"] == 16
    assert tensors(completed) == [("x", "TYPE_FP32", [3]), ("y", "TYPE_FP32", [3])]


def test_a_configuration_with_inputs_and_outputs_is_left_alone(served: Served) -> None:
    assert served.config("unbatched")["max_batch_size"] == 0


def tensors(configuration: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    return [
        (entry["name"], entry["data_type"], entry["dims"])
        for role in ("input", "output")
        for entry in configuration[role]
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", 4),
        ("--backend-config=default-max-batch-size=7", 7),
        ("--backend-config python,default-max-batch-size=7", 7),
        (
            "--backend-config=onnxruntime,default-max-batch-size=8 "
            "--backend-config=default-max-batch-size=7",
            8,
        ),
        ("--backend-config=tensorrt,default-max-batch-size=9", 4),
    ],
)
def test_the_default_batch_size_is_the_most_specific_flag(
    backend: ModuleType, flags: str, expected: int
) -> None:
    assert backend.default_max_batch_size(f"tritonserver {flags} --strict-readiness") == expected


# --- Refusals at load ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_model_loads(served: Served, name: str) -> None:
    assert served.refusals[name] == ""


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(
    served: Served, name: str
) -> None:
    assert f"{name} version 1: {REFUSED[name][1]}" in served.refusals[name]


def test_a_missing_provider_names_the_package_that_has_it(served: Served) -> None:
    assert "install onnxruntime-gpu instead" in served.refusals["no_tensorrt"]
    assert "install onnxruntime-openvino instead" in served.refusals["no_openvino"]


# --- Versions and files -------------------------------------------------------------------------


@pytest.mark.parametrize("version", SCALED)
def test_each_version_answers_from_its_own_file(served: Served, version: int) -> None:
    ones = np.ones((1, 3), np.float32)
    assert same(served.ask("versions", str(version), x=ones)["y"], version * ones)


# --- Running ------------------------------------------------------------------------------------


def test_requests_that_wait_together_run_once_and_each_gets_its_own_answer(served: Served) -> None:
    sizes = (1, 2, 3, 1, 2, 3)  # 12 rows in all, the maximum
    batches = [np.random.default_rng(size).random((size, 3), np.float32) for size in sizes]
    answers = served.ask_together("held", [{"x": batch} for batch in batches], "y")
    assert all(same(answer, 2 * batch) for answer, batch in zip(answers, batches, strict=True))
    until(lambda: served.counts("held") == (sum(sizes), 1))  # Triton counts after it has answered


def test_a_bad_request_in_a_batch_fails_alone(served: Served) -> None:
    requests = [{"index": np.array([[index]])} for index in (0, 99, 2, 3)]
    first, bad, *others = served.ask_together("lookup", requests, "value")
    assert [first, *others] == [10, 30, 40]
    assert "lookup version 1: input 'index' has shape (1,1), the model file expects" in str(bad)
    assert "Gather" in str(bad)
    until(lambda: served.counts("lookup")[1] == 1)  # they did run together


def test_requests_of_different_shapes_are_each_answered_in_their_own(served: Served) -> None:
    requests = [
        {"a": np.full((1, width), 4, np.float32), "b": np.full((1, width), 2, np.float32)}
        for width in (1, 2, 1, 3)
    ]
    answers = served.ask_together("arithmetic", requests, "quotient")
    assert [answer.tolist() for answer in answers] == [[[2]], [[2, 2]], [[2]], [[2, 2, 2]]]


def test_inputs_and_outputs_go_by_name_not_by_order(served: Served) -> None:
    answer = served.ask(
        "arithmetic", b=np.array([[2, 4]], np.float32), a=np.array([[8, 8]], np.float32)
    )
    assert {name: array.tolist() for name, array in answer.items()} == {
        "difference": [[6, 4]],
        "quotient": [[4, 2]],
    }


def test_only_the_outputs_that_were_asked_for_come_back(served: Served) -> None:
    number = np.array([[6]], np.float32)
    result = served.http.infer(
        "arithmetic",
        [http_input("a", number), http_input("b", number)],
        outputs=[triton_http.InferRequestedOutput("quotient")],
    )
    assert [output["name"] for output in result.get_response()["outputs"]] == ["quotient"]


def test_a_failure_shows_the_shapes_that_were_given_and_wanted(served: Served) -> None:
    with pytest.raises(InferenceServerException) as caught:
        served.ask("arithmetic", a=np.ones((1, 2), np.float32), b=np.ones((1, 3), np.float32))
    wanted = "the model file expects TYPE_FP32 [batch,n]"
    shown = f"input 'a' has shape (1,2), {wanted}; input 'b' has shape (1,3), {wanted}: "
    assert f"arithmetic version 1: {shown}" in caught.value.message()


def test_a_model_that_loses_the_batch_is_not_cut_up(served: Served) -> None:
    with pytest.raises(InferenceServerException, match="output 'y' has 6 rows for a batch of 2"):
        served.ask("flattened", x=np.ones((2, 3), np.float32))


def test_empty_rows_are_answered_empty(served: Served) -> None:
    empty = np.ones((2, 0), np.float32)
    assert served.ask("arithmetic", a=empty, b=empty)["quotient"].shape == (2, 0)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_without_batching_a_free_dimension_takes_any_size(served: Served, rows: int) -> None:
    sent = np.ones((rows, 3), np.float32)
    assert same(served.ask("unbatched", x=sent)["y"], sent)


def test_an_optional_input_falls_back_to_the_default_in_the_file(served: Served) -> None:
    zeros = np.zeros(3, np.float32)
    assert served.ask("optional", x=zeros)["y"].tolist() == [1, 2, 3]
    assert served.ask("optional", x=zeros, offset=zeros)["y"].tolist() == [0, 0, 0]


def test_sequence_controls_reach_the_model_as_inputs(served: Served) -> None:
    step = [http_input("x", np.array([[1]], np.float32))]
    first = served.http.infer("sequence", step, sequence_id=7, sequence_start=True)
    last = served.http.infer("sequence", step, sequence_id=7, sequence_end=True)
    assert [first.as_numpy("y").item(), last.as_numpy("y").item()] == [101, 1]


# --- GPUs, as far as they can be planned without one --------------------------------------------

INSTALLED = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
ACCELERATED: Mapping[str, Any] = {
    "optimization": {
        "execution_accelerators": {
            "gpu_execution_accelerator": [
                {"name": "cuda", "parameters": {"cudnn_conv_algo_search": "HEURISTIC"}},
                {
                    "name": "tensorrt",
                    "parameters": {
                        "precision_mode": "FP16",
                        "max_workspace_size_bytes": "1073741824",
                        "trt_engine_cache_enable": "1",
                        "trt_engine_cache_path": "/cache",
                        "trt_builder_optimization_level": "1",
                        "int8_use_native_calibration_table": "off",
                    },
                },
            ]
        }
    }
}


def test_accelerators_run_on_the_instances_device_tensorrt_first(backend: ModuleType) -> None:
    assert backend.plan_providers(ACCELERATED, "GPU", 3, INSTALLED) == [
        (
            "TensorrtExecutionProvider",
            {
                "trt_fp16_enable": "True",
                "trt_max_workspace_size": "1073741824",
                "trt_engine_cache_enable": "True",
                "trt_engine_cache_path": "/cache",
                "trt_builder_optimization_level": "1",
                "trt_int8_use_native_calibration_table": "False",
                "device_id": "3",
            },
        ),
        ("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC", "device_id": "3"}),
        ("CPUExecutionProvider", {}),
    ]


@pytest.mark.parametrize(
    ("kind", "installed", "expected"),
    [
        ("GPU", INSTALLED, ["CUDAExecutionProvider", "CPUExecutionProvider"]),
        ("AUTO", INSTALLED, ["CUDAExecutionProvider", "CPUExecutionProvider"]),
        ("AUTO", INSTALLED[2:], ["CPUExecutionProvider"]),
        ("CPU", INSTALLED, ["CPUExecutionProvider"]),
        ("MODEL", INSTALLED, ["CPUExecutionProvider"]),
    ],
)
def test_the_kind_of_instance_decides_between_gpu_and_cpu(
    backend: ModuleType, kind: str, installed: list[str], expected: list[str]
) -> None:
    assert [name for name, _ in backend.plan_providers({}, kind, 0, installed)] == expected


def test_an_instance_on_the_cpu_does_not_use_gpu_accelerators(backend: ModuleType) -> None:
    assert backend.plan_providers(ACCELERATED, "CPU", 0, INSTALLED) == [
        ("CPUExecutionProvider", {})
    ]


def test_an_instance_on_a_gpu_needs_a_package_with_cuda(backend: ModuleType) -> None:
    with pytest.raises(
        ValueError, match=r"an instance on GPU 1 needs CUDA.+ install onnxruntime-gpu"
    ):
        backend.plan_providers({}, "GPU", 1, ["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def backend() -> Iterator[ModuleType]:
    """The backend's own module, imported as Triton's stub does it: by its path."""
    folder = Path(__file__).parents[2] / "serve" / "triton" / "backends" / "onnxruntime"
    stub = Path(sysconfig.get_path("purelib"), "pytriton", "tritonserver", "backends", "python")
    specification = importlib.util.spec_from_file_location("backend", folder / "model.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(folder), str(stub)])
        specification.loader.exec_module(module)
    yield module
