"""The onnxruntime backend in a real Triton: what it completes, refuses, batches and answers."""

import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
from harness import until
from refusals import refusal
from tritonclient.utils import InferenceServerException

from . import client_models
from .conftest import BareTritonFactory, load
from .onnx_models import Model, config, identity, node, onnx_file, sequence_of, tensor

pytestmark = [pytest.mark.triton, pytest.mark.slow]

PATIENCE = 30.0  # seconds; a bound for what takes milliseconds
HOLD = "dynamic_batching { max_queue_delay_microseconds: 5000000 }"  # until the batch is full

VALUES: Mapping[str, np.ndarray[Any, Any]] = {  # one row of each datatype
    "STRING" if name == "BYTES" else name: values[np.newaxis]
    for name, values in client_models.VALUES.items()
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
            {1: identity(data_type, "batch", 3)}, config(f"x {data_type} [3]", f"y {data_type} [3]")
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

MISSING = "is not supported by the Python onnxruntime backend"
FIXED_BATCH = "input 'x' is TYPE_FP32 [1,3] in the model file"


def bad(text: str, file: bytes = IDENTITY, **more: str) -> Model:
    return Model({1: file}, text, **more)


def with_more(*more: str) -> Model:
    """A model that would load without these lines of its configuration."""
    return bad(config(*XY, *more))


REFUSED: dict[str, tuple[Model, str]] = {
    "wrong_name": (
        bad(config("z FP32 [3]", "y FP32 [3]")),
        "the configuration has no input 'x', the model file expects TYPE_FP32 [batch,3]",
    ),
    "extra_input": (
        bad(config("x FP32 [3]; z FP32 [3]", "y FP32 [3]")),
        "the model file has no input 'z', only x",
    ),
    "extra_output": (
        bad(config("x FP32 [3]", "y FP32 [3]; z FP32 [3]")),
        "the model file has no output 'z', only y",
    ),
    "wrong_type": (
        bad(config("x INT32 [3]", "y FP32 [3]")),
        "input 'x' is TYPE_INT32 [-1,3] (max_batch_size 8) in the configuration, "
        "but TYPE_FP32 [batch,3] in the model file",
    ),
    "wrong_dims": (
        bad(config("x FP32 [3]", "y FP32 [4]")),
        "output 'y' is TYPE_FP32 [-1,4] (max_batch_size 8) in the configuration, "
        "but TYPE_FP32 [batch,3] in the model file",
    ),
    "narrowed_output": (
        bad(config("a FP32 [2]; b FP32 [2]", "quotient FP32 [2]"), ARITHMETIC),
        "output 'quotient' is TYPE_FP32 [-1,2] (max_batch_size 8) in the configuration, "
        "but TYPE_FP32 [batch,n] in the model file",
    ),
    "fixed_batch": (
        bad(config(*XY), identity("FP32", 1, 3)),
        f"max_batch_size is 8, but {FIXED_BATCH}: "
        "set max_batch_size to 0, or export the model with a free first dimension",
    ),
    "fixed_batch_bare": (
        bad("max_batch_size: 4", identity("FP32", 1, 3)),
        f"max_batch_size is 4, but {FIXED_BATCH}",
    ),
    "mandatory_default": (
        bad(config("x FP32 [3]; offset FP32 [3]", XY[1], max_batch_size=0), WITH_DEFAULT),
        "input 'offset' has a default in the model file: make it optional",
    ),
    "optional_without_default": (
        bad(config("x FP32 [3] optional: true", XY[1], max_batch_size=0), identity("FP32", 3)),
        "input 'x' is optional, but has no default in the model file",
    ),
    "no_file": (
        bad(config(*XY), filename="other.onnx"),
        "the model's directory has no file '1/model.onnx'",
    ),
    "not_onnx": (
        bad(config(*XY), b"not a model"),
        "ONNX Runtime cannot load 'model.onnx': Protobuf parsing failed.",
    ),
    "not_a_tensor": (
        bad(config(*XY), sequence_of("FP32", "batch", 3)),
        "output 'y' is a seq(tensor(float)), which is not a data type of Triton",
    ),
    "decoupled": (
        with_more("model_transaction_policy { decoupled: true }"),
        f"'decoupled' {MISSING}",
    ),
    "ragged": (
        bad(config("x FP32 [3] allow_ragged_batch: true", "y FP32 [3]")),
        f"'allow_ragged_batch' {MISSING}",
    ),
    "bad_threads": (
        with_more(parameter("intra_op_thread_count", "two")),
        "parameter 'intra_op_thread_count' has the value 'two', it must be an integer, 0 or more",
    ),
    "bad_mode": (
        with_more(parameter("execution_mode", "2")),
        "parameter 'execution_mode' has the value '2', it must be 0 or 1",
    ),
    "bad_level": (
        with_more("optimization { graph { level: 7 } }"),
        "parameter 'optimization.graph.level' has the value '7', it must be -1 or 0 or 1 or 2",
    ),
    "bad_shrinkage": (
        with_more(parameter("memory.enable_memory_arena_shrinkage", "yes")),
        "parameter 'memory.enable_memory_arena_shrinkage' has the value 'yes', "
        "it must be a list of devices such as cpu:0;gpu:0",
    ),
    "no_tensorrt": (
        with_more(accelerator("gpu", "tensorrt", precision_mode="FP16")),
        "the GPU execution accelerator 'tensorrt' needs TensorrtExecutionProvider",
    ),
    "no_openvino": (
        with_more(accelerator("cpu", "openvino")),
        "the CPU execution accelerator 'openvino' needs OpenVINOExecutionProvider",
    ),
    "unknown_accelerator": (
        with_more(accelerator("gpu", "abacus")),
        "unknown Execution Accelerator 'abacus' is requested",
    ),
    "unknown_parameter": (
        with_more(accelerator("gpu", "tensorrt", precision="FP16")),
        "unknown parameter 'precision' is provided for TensorRT Execution Accelerator",
    ),
}


# --- The server ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Served:
    """A Triton that was asked to load all these models; `refusals` says what came of it."""

    http: triton_http.InferenceServerClient
    refusals: Mapping[str, str]

    def config(self, model: str) -> dict[str, Any]:
        return dict(self.http.get_model_config(model))

    def ask(
        self, model: str, version: str = "", /, **inputs: Any
    ) -> dict[str, np.ndarray[Any, Any]]:
        """All outputs."""
        result = self.http.infer(model, filled(inputs), version)
        names = [output["name"] for output in result.get_response()["outputs"]]
        return {name: result.as_numpy(name) for name in names}

    def ask_together(
        self, model: str, requests: Sequence[Mapping[str, Any]], output: str
    ) -> list[Any]:
        """Send all requests before reading an answer: the output of each, or its error's text."""
        sent = [self.http.async_infer(model, filled(inputs)) for inputs in requests]
        answers: list[Any] = []
        for one in sent:
            try:
                answers.append(one.get_result().as_numpy(output))
            except InferenceServerException as error:
                answers.append(error.message())
        return answers

    def counts(self, model: str) -> tuple[int, int]:
        """How many inferences and how many executions there were."""
        [statistics] = self.http.get_inference_statistics(model)["model_stats"]
        return statistics["inference_count"], statistics["execution_count"]


DATA_TYPES = {array.dtype.name: name for name, array in VALUES.items()} | {"object": "BYTES"}


def filled(inputs: Mapping[str, Any]) -> list[triton_http.InferInput]:
    given = []
    for name, value in inputs.items():
        array = np.asarray(value)
        given.append(triton_http.InferInput(name, list(array.shape), DATA_TYPES[array.dtype.name]))
        given[-1].set_data_from_numpy(array)
    return given


@pytest.fixture(scope="module")
def served(bare_triton_factory: BareTritonFactory) -> Iterator[Served]:
    server = bare_triton_factory(
        "--backend-config=onnxruntime,default-max-batch-size=6", "--model-load-thread-count=8"
    )
    models = MODELS | {name: model for name, (model, _) in REFUSED.items()}
    for name, model in models.items():
        model.write(server.repository / name)

    def refused(name: str) -> str:
        try:
            load(server, name)
        except RuntimeError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as threads:
        refusals = dict(zip(models, threads.map(refused, models), strict=True))
    client = triton_http.InferenceServerClient(server.http, network_timeout=PATIENCE, concurrency=8)
    with client as http:
        yield Served(http, refusals)


# --- Data types ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", VALUES)
def test_every_data_type_comes_back_unchanged_and_in_its_order(
    served: Served, data_type: str
) -> None:
    row = VALUES[data_type]
    for sent in (row, np.concatenate([row, row[:, ::-1]])):
        assert same(served.ask(f"as_{data_type}", x=sent)["y"], sent)


def same(answer: np.ndarray[Any, Any] | None, sent: np.ndarray[Any, Any]) -> bool:
    if answer is None or answer.shape != sent.shape:
        return False
    if sent.dtype == np.object_:
        return list(answer.flat) == list(sent.flat)
    return answer.dtype == sent.dtype and answer.tobytes() == sent.tobytes()


def test_bytes_that_are_no_text_are_refused_by_input_and_element(served: Served) -> None:
    with pytest.raises(InferenceServerException) as caught:
        served.ask("as_STRING", x=np.array([[b"a", b"\xff", b"c"]], np.object_))
    assert caught.value.status() == "400"
    assert "as_STRING version 1: input 'x' is not UTF-8 at element 1" in caught.value.message()


# --- Completing a configuration -----------------------------------------------------------------


def test_what_a_configuration_leaves_out_is_completed_from_the_file(served: Served) -> None:
    column = VALUES["BF16"].reshape(3, 1)
    for model, largest, dims, sent in (
        ("bare", 6, [3], VALUES["FP32"]),  # the largest batch that the server was told
        ("bare_fixed", 0, [1, 3], VALUES["INT32"]),  # a fixed first dimension: no batching
        ("bare_rows", 6, [1], column),  # one number per row has a reshape
        ("bare_scalar", 0, [1], np.array([2.5], np.float32)),
        ("no_outputs", 16, [3], VALUES["FP32"]),  # what the configuration says stays
    ):
        completed = served.config(model)
        assert (completed["backend"], completed["max_batch_size"]) == ("onnxruntime", largest)
        datatype = f"TYPE_{DATA_TYPES[sent.dtype.name]}"
        assert [
            (entry["name"], entry["data_type"], entry["dims"])
            for entry in (*completed["input"], *completed["output"])
        ] == [("x", datatype, dims), ("y", datatype, dims)], model
        assert same(served.ask(model, x=sent)["y"], sent), model
    assert served.config("bare")["platform"] == "onnxruntime_onnx"
    assert "dynamic_batching" in served.config("bare")
    assert "dynamic_batching" not in served.config("bare_fixed")
    assert served.config("unbatched")["max_batch_size"] == 0  # it has inputs and outputs


def test_the_default_batch_size_is_the_most_specific_flag(backend: ModuleType) -> None:
    ours, other = "onnxruntime,default-max-batch-size=8", "tensorrt,default-max-batch-size=9"
    for flags, expected in (
        ("", 4),
        ("--backend-config=default-max-batch-size=7", 7),
        ("--backend-config python,default-max-batch-size=7", 7),
        (f"--backend-config={ours} --backend-config=default-max-batch-size=7", 8),
        (f"--backend-config={other}", 4),
    ):
        command = f"tritonserver {flags} --strict-readiness"
        assert backend.default_max_batch_size(command) == expected, flags


# --- Refusals at load ---------------------------------------------------------------------------


def test_a_sound_model_loads_and_any_other_is_refused_with_the_reason(served: Served) -> None:
    for name, said in served.refusals.items():
        if name in MODELS:
            assert said == "", name
        else:
            assert f"{name} version 1: {REFUSED[name][1]}" in said, name
    # a provider that is missing names the package that has it
    assert "install onnxruntime-gpu instead" in served.refusals["no_tensorrt"]
    assert "install onnxruntime-openvino instead" in served.refusals["no_openvino"]


# --- Running ------------------------------------------------------------------------------------


def test_each_version_answers_from_its_own_file(served: Served) -> None:
    ones = np.ones((1, 3), np.float32)
    for version in SCALED:
        assert same(served.ask("versions", str(version), x=ones)["y"], version * ones), version


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


def test_inputs_and_outputs_go_by_name_and_only_what_was_asked_for_comes_back(
    served: Served,
) -> None:
    given = {"b": np.array([[2, 4]], np.float32), "a": np.array([[8, 8]], np.float32)}
    answer = served.ask("arithmetic", **given)
    assert {name: array.tolist() for name, array in answer.items()} == {
        "difference": [[6, 4]],
        "quotient": [[4, 2]],
    }
    wanted = [triton_http.InferRequestedOutput("quotient")]
    result = served.http.infer("arithmetic", filled(given), outputs=wanted)
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


def test_a_free_dimension_takes_any_size(served: Served) -> None:
    for rows in (0, 1, 5):
        sent = np.ones((rows, 3), np.float32)
        assert same(served.ask("unbatched", x=sent)["y"], sent), rows
    empty = np.ones((2, 0), np.float32)
    assert served.ask("arithmetic", a=empty, b=empty)["quotient"].shape == (2, 0)


def test_an_optional_input_falls_back_to_the_default_in_the_file(served: Served) -> None:
    zeros = np.zeros(3, np.float32)
    assert served.ask("optional", x=zeros)["y"].tolist() == [1, 2, 3]
    assert served.ask("optional", x=zeros, offset=zeros)["y"].tolist() == [0, 0, 0]


def test_sequence_controls_reach_the_model_as_inputs(served: Served) -> None:
    step = filled({"x": np.array([[1]], np.float32)})
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


def test_the_kind_of_instance_decides_between_gpu_and_cpu(backend: ModuleType) -> None:
    on_gpu, on_cpu = ["CUDAExecutionProvider", "CPUExecutionProvider"], ["CPUExecutionProvider"]
    for kind, configuration, installed, expected in (
        ("GPU", {}, INSTALLED, on_gpu),
        ("AUTO", {}, INSTALLED, on_gpu),
        ("AUTO", {}, on_cpu, on_cpu),
        ("CPU", {}, INSTALLED, on_cpu),
        ("CPU", ACCELERATED, INSTALLED, on_cpu),
        ("MODEL", {}, INSTALLED, on_cpu),
    ):
        found = backend.plan_providers(configuration, kind, 0, installed)
        assert [name for name, _ in found] == expected, (kind, configuration, installed)


def test_an_instance_on_a_gpu_needs_a_package_with_cuda(backend: ModuleType) -> None:
    refused = refusal(ValueError, backend.plan_providers, {}, "GPU", 1, ["CPUExecutionProvider"])
    assert "an instance on GPU 1 needs CUDA" in str(refused)
    assert "install onnxruntime-gpu" in str(refused)


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
