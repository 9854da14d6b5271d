"""Models and ensembles with exactly one thing wrong, by the rule that has to find it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import dumps
from types import MappingProxyType
from typing import Any

from serve.core.versions import VersionFile
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.triton.config import parse
from serve.triton.lint import LintSubject

X, Y = ModelTensor("x", "FP32", (-1, 3)), ModelTensor("y", "FP32", (-1, 3))
INPUT = 'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }\n'
OUTPUT = 'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }\n'
IO = INPUT + OUTPUT
BACKEND = 'backend: "onnxruntime"\n'
HEAD = BACKEND + "max_batch_size: 8\n"
GOOD = HEAD + IO
FILES = ("config.pbtxt", "1/model.onnx")
PLAN = "1/model.p.plan"
HEADER = ModelSignature("plan", (), (), MappingProxyType({"tensorrt": "10.13.2.6"}))


def file_of(
    inputs: Sequence[ModelTensor] = (X,),
    outputs: Sequence[ModelTensor] = (Y,),
    kind: str = "onnx",
    **facts: Any,
) -> ModelSignature:
    """What a reader tells of a model file."""
    return ModelSignature(kind, tuple(inputs), tuple(outputs), MappingProxyType(facts))


ONNX = file_of()
CLASSES = {"kind": "classes", "values": "logits"}
LETTERS = {"kind": "text", "as": "codepoints", "dtype": "INT32"}
PICTURE = {"kind": "image", "color": "rgb", "layout": "HWC", "dtype": "FP32"}


def subject(
    config: str | None = GOOD,
    *,
    files: Sequence[str] = FILES,
    signature: ModelSignature | None = ONNX,
    others: Mapping[str, str] | None = None,
    gpus: int | None = None,
    name: str = "m",
    flavours: str = "",
    signatures: Mapping[str, ModelSignature] | None = None,
    plans: Mapping[str, Any] | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    output_kinds: Mapping[str, Any] | None = None,
) -> LintSubject:
    """A model named m, with nothing wrong unless it is said."""
    return LintSubject(
        name,
        None if config is None else parse(config),
        tuple(VersionFile(path, 1, "") for path in files),
        signature,
        {key: parse(text) for key, text in (others or {}).items()},
        gpus,
        flavours,
        signatures or {},
        plans or {},
        preprocessing or {},
        output_kinds or {},
    )


def flavour(*, files: Sequence[str] = FILES, format: int = 1, **fields: Any) -> LintSubject:
    """The good model with one flavour."""
    return flavoured({"name": "f", **fields}, files=files, format=format)


def flavoured(*flavours: Any, format: int = 1, **changes: Any) -> LintSubject:
    """The good model with these flavours."""
    return subject(flavours=dumps({"format": format, "flavours": flavours}), **changes)


def planned(needs: Any, **facts: Any) -> LintSubject:
    """The good model with a plan, of which this is recorded."""
    plan = {"name": "p", "file": PLAN[2:], "backend": "tensorrt", "needs": needs}
    return flavoured(plan, files=(*FILES, PLAN), plans={"p": facts})


def trt(**parameters: str) -> Any:
    """The field `config` of a flavour with the TensorRT accelerator."""
    accelerator = {"name": "tensorrt", "parameters": parameters}
    accelerators = {"gpu_execution_accelerator": [accelerator]}
    return {"optimization": {"execution_accelerators": accelerators}}


def onnx(more: str, **changes: Any) -> LintSubject:
    """The good model and a line more."""
    return subject(GOOD + more, **changes)


def tensors(inputs: str, outputs: str = OUTPUT, **changes: Any) -> LintSubject:
    """The good model with another input, or another output."""
    return subject(HEAD + inputs + outputs, **changes)


def x_with(*changes: str) -> LintSubject:
    """The good model, in whose input x some text is another."""
    return tensors(INPUT.replace(*changes))


def y_with(*changes: str) -> LintSubject:
    """The same of the output y."""
    return tensors(INPUT, OUTPUT.replace(*changes))


def unbatched(config: str, *shapes: tuple[int, ...], **changes: Any) -> LintSubject:
    """A model without batches, whose file has one input x and one output y of these shapes."""
    x, y = (ModelTensor(name, "FP32", shape) for name, shape in zip("xy", shapes, strict=True))
    return subject(BACKEND + config, signature=file_of([x], [y], **changes))


def group(text: str, **changes: Any) -> LintSubject:
    """The good model with an instance group."""
    return onnx(f"instance_group {{ {text} }}", **changes)


def warmup(inputs: str, batch: int = 1, **changes: Any) -> LintSubject:
    """The good model with a warm-up sample."""
    return onnx(f'model_warmup {{ name: "w" batch_size: {batch} {inputs} }}', **changes)


def sample(name: str = "x", kind: str = "TYPE_FP32", dims: str = "3", data: str = "zero") -> str:
    """One input of a warm-up sample."""
    given = f"{data}_data: true" if data in ("zero", "random") else data
    return f'inputs {{ key: "{name}" value {{ data_type: {kind} dims: [ {dims} ] {given} }} }}'


def accelerated(name: str, parameters: str = "", place: str = "gpu") -> LintSubject:
    """The good model with an execution accelerator."""
    return onnx(
        f"optimization {{ execution_accelerators {{ {place}_execution_accelerator "
        f'{{ name: "{name}" {parameters} }} }} }}'
    )


def parameter(key: str, value: str) -> str:
    """One entry of the map `parameters` of a model."""
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def dynamic(text: str) -> LintSubject:
    """The good model with dynamic batching."""
    return onnx(f"dynamic_batching {{ {text} }}")


def queue(text: str, more: str = "") -> LintSubject:
    """The good model with a default queue policy."""
    return dynamic(f"default_queue_policy {{ {text} }} {more}")


def prioritised(text: str, more: str = "") -> LintSubject:
    """The good model with two priorities, and a policy for the second."""
    policy = f"priority_queue_policy {{ key: 2 value {{ {text} }} }}"
    return dynamic(f"priority_levels: 2 default_priority_level: 1 {policy} {more}")


def sequences(text: str) -> LintSubject:
    """The good model with sequence batching."""
    return onnx(f"sequence_batching {{ {text} }}")


def oldest(text: str) -> LintSubject:
    """The good model with sequences, the oldest first."""
    return sequences(f"oldest {{ {text} }}")


def limited(*resources: str) -> LintSubject:
    """The good model with a rate limiter."""
    wanted = " ".join(f"resources {{ {each} }}" for each in resources)
    return group(f"kind: KIND_CPU rate_limiter {{ {wanted} }}")


FIXED = file_of([ModelTensor("x", "FP32", (1, 3))], [ModelTensor("y", "FP32", (1, 3))])
OFFSET = {"name": "o", "datatype": "FP32", "shape": [3]}
LABELLED = 'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }'
SPARSE = file_of(outputs=[Y, ModelTensor("z", "sequence", None)])
SPARE = 'input { name: "o" data_type: TYPE_FP32 dims: [ 3 ] optional: true }'
TEXT = ModelTensor("x", "BYTES", (-1, 3))

_MODELS: Mapping[str, Sequence[LintSubject]] = {
    "tensor-unnamed": [tensors(INPUT + "input { data_type: TYPE_FP32 dims: [ 3 ] }")],
    "tensor-twice": [tensors(INPUT * 2), tensors(INPUT, OUTPUT * 2)],
    "datatype-missing": [tensors('input { name: "x" dims: [ 3 ] }')],
    "datatype-unsupported": [
        subject(signature=SPARSE),
        subject(signature=file_of(outputs=[Y, ModelTensor("z", "float8e5m2", (-1, 3))])),
    ],
    "datatype-differs": [x_with("FP32", "INT64"), y_with("FP32", "STRING")],
    "dims-invalid": [x_with("[ 3 ]", f"[ {dims} ]") for dims in ("", "0", "-2", "3, 0")],
    "dims-hold-batch": [x_with("[ 3 ]", "[ -1, 3 ]"), y_with("[ 3 ]", "[ -1, 3 ]")],
    "dims-count": [
        x_with("[ 3 ]", "[ 3, 1, 1 ]"),
        unbatched(IO.replace("[ 3 ]", "[ 3, 1 ]", 1), (3,), (3,)),
    ],
    "dims-differ": [
        x_with("[ 3 ]", "[ 4 ]"),
        x_with("[ 3 ]", "[ -1 ]"),
        y_with("[ 3 ]", "[ -1 ]"),
        x_with("[ 3 ]", "[ 2, 2 ] reshape { shape: [ 4 ] }"),
        unbatched(IO.replace("[ 3 ]", "[ 3, 2 ]"), (3, 3), (3, 2)),
    ],
    "reshape-size": [
        x_with("[ 3 ]", "[ 4 ] reshape { shape: [ 3 ] }"),
        x_with("[ 3 ]", "[ -1 ] reshape { shape: [ 3 ] }"),
    ],
    "reshape-empty": [unbatched(IO.replace("[ 3 ]", "[ 1 ] reshape { shape: [ ] }", 1), (), (3,))],
    "format-rank": [x_with("dims", "format: FORMAT_NCHW dims")],
    "input-missing": [subject(signature=file_of([X, ModelTensor("more", "FP32", (-1, 2))]))],
    "input-unknown": [tensors(INPUT + INPUT.replace('"x"', '"z"'))],
    "output-unknown": [
        tensors(INPUT, OUTPUT + OUTPUT.replace('"y"', '"z"')),
        replace(
            flavour(file="f.onnx", files=(*FILES, "1/f.onnx")),
            signatures={"f": file_of(outputs=[ModelTensor("z", "FP32", (-1, 3))])},
        ),
    ],
    "optional-without-default": [
        unbatched(IO.replace("dims: [ 3 ] }", "dims: [ 3 ] optional: true }", 1), (3,), (3,))
    ],
    "default-not-optional": [
        unbatched(IO + SPARE.replace("optional: true", ""), (3,), (3,), defaulted=[OFFSET])
    ],
    "optional-batched": [onnx(SPARE, signature=file_of(defaulted=[OFFSET | {"shape": [-1, 3]}]))],
    "batch-size-negative": [subject(BACKEND + "max_batch_size: -1\n" + IO)],
    "batch-dimension-fixed": [
        subject(signature=FIXED),
        subject(HEAD + INPUT, signature=file_of([X], [ModelTensor("y", "FP32", ())])),
    ],
    "batching-without-batches": [unbatched(IO + "dynamic_batching { }", (3,), (3,))],
    "preferred-beyond-largest": [
        dynamic("preferred_batch_size: [ 4, 16 ]"),
        oldest("preferred_batch_size: [ 9 ]"),
    ],
    "preferred-not-positive": [dynamic("preferred_batch_size: [ 0 ]")],
    "delay-absurd": [
        dynamic("max_queue_delay_microseconds: 2000000"),
        oldest("max_queue_delay_microseconds: 2000000"),
    ],
    "delay-without-effect": [
        subject(
            BACKEND
            + "max_batch_size: 1\ndynamic_batching { max_queue_delay_microseconds: 9 }\n"
            + IO
        ),
        sequences("direct { max_queue_delay_microseconds: 9 }"),
    ],
    "priority-default-outside": [
        dynamic(f"priority_levels: 2 default_priority_level: {level}") for level in (0, 3)
    ],
    "priority-policy-outside": [
        dynamic(
            "priority_levels: 2 default_priority_level: 1 "
            "priority_queue_policy { key: 5 value { } }"
        )
    ],
    "priority-without-levels": [dynamic("default_priority_level: 1")],
    "cache-unsupported": [
        onnx("response_cache { enable: true } sequence_batching { }"),
        subject(
            'backend: "identity" max_batch_size: 8 response_cache { enable: true } '
            "model_transaction_policy { decoupled: true }"
        ),
    ],
    "control-unknown": [
        sequences(
            'control_input { name: "start" control '
            "{ kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }"
        )
    ],
    "unsupported-here": [
        onnx("model_transaction_policy { decoupled: true }"),
        x_with("dims", "allow_ragged_batch: true dims"),
    ],
    "instance-count": [group("count: -1")],
    "gpu-missing": [group("kind: KIND_GPU"), group("kind: KIND_GPU", gpus=0)],
    "gpus-without-gpu-kind": [group(f"kind: KIND_{kind} gpus: [ 0 ]") for kind in ("CPU", "MODEL")],
    "gpu-number": [
        group("kind: KIND_GPU gpus: [ -3 ]"),
        group("kind: KIND_GPU gpus: [ 2 ]", gpus=2),
        group("kind: KIND_AUTO gpus: [ 0 ]", gpus=0),
    ],
    "gpu-required": [
        subject(
            'backend: "tensorrt" instance_group { kind: KIND_CPU }',
            files=("1/model.plan",),
            signature=file_of([], [], "plan"),
        )
    ],
    "name-invalid": [subject(name="a/b"), subject(name="stats")],
    "name-differs": [onnx('name: "other"')],
    "version-policy-ignored": [onnx("version_policy { latest { num_versions: 1 } }")],
    "label-file-missing": [tensors(INPUT, LABELLED)],
    "label-file-misplaced": [
        tensors(INPUT, LABELLED, files=(*FILES, "1/labels.txt")),
        tensors(INPUT, LABELLED.replace("labels", "1/labels"), files=(*FILES, "1/labels.txt")),
    ],
    "platform-unknown": [subject('platform: "onnx"\nmax_batch_size: 8\n' + IO)],
    "backend-unknown": [
        subject('backend: "onnx"\nmax_batch_size: 8\n' + IO),
        flavour(backend="trt"),
    ],
    "backend-missing": [subject("max_batch_size: 8\n" + IO, files=("1/net.onnx",))],
    "platform-against-backend": [onnx('platform: "tensorrt_plan"')],
    "platform-against-file": [
        subject('platform: "onnxruntime_onnx"', files=("1/model.plan",), signature=None)
    ],
    "tensorflow-ended": [
        subject('platform: "tensorflow_savedmodel"', files=("1/model.savedmodel/saved_model.pb",)),
        subject('platform: "tensorflow_graphdef"', files=("1/model.graphdef",), signature=None),
        subject(None, files=("1/model.savedmodel/saved_model.pb",), signature=None),
    ],
    "version-empty": [subject(files=("config.pbtxt",), signature=None)],
    "model-file-missing": [subject(files=("1/net.onnx",), signature=None)],
    "default-file-missing": [
        flavour(file="model.f.onnx"),
        onnx('default_model_filename: "net.onnx"'),
    ],
    "external-data-missing": [subject(signature=file_of(external_data=["weights.bin"]))],
    "external-data-outside": [
        subject(signature=file_of(external_data=[path])) for path in ("../w.bin", "/etc/passwd")
    ],
    "opset-new": [subject(signature=file_of(opset={"ai.onnx": 26}))],
    "graph-invalid": [subject(signature=file_of(checker="Nodes in a graph must be sorted"))],
    "warmup-input-unknown": [warmup(sample() + sample("z"))],
    "warmup-input-missing": [warmup("")],
    "warmup-differs": [
        warmup(sample(kind="TYPE_INT32")),
        warmup(sample(dims="4")),
        warmup(sample(dims="-1")),
        warmup(sample(dims="1, 3")),
    ],
    "warmup-batch-size": [warmup(sample(), 16)],
    "warmup-file-missing": [
        warmup(sample(data='input_data_file: "x.raw"')),
        warmup(sample(data='input_data_file: "x.raw"'), files=(*FILES, "x.raw")),
    ],
    "warmup-data-missing": [warmup(sample(data=""))],
    "warmup-random-text": [
        subject(
            HEAD
            + INPUT.replace("FP32", "STRING")
            + OUTPUT
            + f'model_warmup {{ name: "w" {sample(kind="TYPE_STRING", data="random")} }}',
            signature=file_of([TEXT]),
        )
    ],
    "accelerator-unknown": [accelerated("trt"), accelerated("tensorrt", place="cpu")],
    "accelerator-parameter": [accelerated("tensorrt", 'parameters { key: "trt_x" value: "1" }')],
    "precision-mode-removed": [
        accelerated("tensorrt", 'parameters { key: "precision_mode" value: "FP16" }')
    ],
    "parameter-value": [
        onnx(parameter("intra_op_thread_count", "many")),
        onnx(parameter("enable_mem_arena", "perhaps")),
        onnx(parameter("memory.enable_memory_arena_shrinkage", "cpu")),
    ],
    "parameter-path": [onnx(parameter("cache", "/var/cache/m"))],
    "graph-level": [onnx("optimization { graph { level: 7 } }")],
    "field-new": [onnx("model_metrics { }")],
    "field-refused": [onnx('runtime: "libevil.so"')],
    "preprocessing-malformed": [subject(preprocessing={"inputs": {"x": {"kind": "sound"}}})],
    "preprocessing-unfit": [
        subject(preprocessing={"inputs": {"y": LETTERS | {"length": 3}}}),
        subject(BACKEND, signature=FIXED, preprocessing={"inputs": {"x": PICTURE}}),
    ],
    "outputs-malformed": [
        subject(output_kinds={"outputs": {"y": {"kind": "labels"}}}),
        subject(output_kinds={"outputs": {"y": CLASSES | {"labels": "missing.txt"}}}),
    ],
    "outputs-unfit": [subject(output_kinds={"outputs": {"other": CLASSES}})],
    "conversion-unverified": [replace(subject(), unverified="there are 5 samples")],
    "flavours-malformed": [
        flavour(format=2),
        flavour(needs={"gpus": 1}),
        flavour(needs={"tensorrt": ["newest"]}),
    ],
    "flavour-override": [
        flavour(config={"max_batch_size": 4}),
        flavour(config={"optimization": {"graph": {"levels": 1}}}),
        flavour(config=trt(trt_extra_plugin_lib_paths="libevil.so")),
    ],
    "flavour-needs": [
        planned({"compute_capability": ["9.0"]}, tensorrt="10.13.2"),
        planned({"tensorrt": ["10.12"]}, tensorrt="10.13.2"),
        planned({"compute_capability": ["8.0"]}, compute_capability="9.0"),
        planned({"compute_capability": ["9.0", "8.0"]}, compute_capability="9.0"),
        planned({"compute_capability": ["8.0+"]}, compute_capability="9.0", hardware="none"),
        replace(planned({"tensorrt": ["10.13.1"]}), signatures={"p": HEADER}),
    ],
}

# --- batching -------------------------------------------------------------------------------------


_BATCHING: Mapping[str, Sequence[LintSubject]] = {
    "preferred-twice": [dynamic("preferred_batch_size: [ 4, 8, 4 ]")],
    "preferred-one": [
        dynamic("preferred_batch_size: [ 1, 8 ]"),
        oldest("preferred_batch_size: [ 1 ]"),
    ],
    "preferred-caps": [
        dynamic("preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100"),
        oldest("preferred_batch_size: [ 4 ]"),
    ],
    "ordering-with-priorities": [
        dynamic("preserve_ordering: true priority_levels: 2 default_priority_level: 1")
    ],
    "ordering-with-delayed": [
        queue("timeout_action: DELAY default_timeout_microseconds: 9000", "preserve_ordering: true")
    ],
    "ordering-holds-answers": [
        onnx(
            "dynamic_batching { preserve_ordering: true } "
            "instance_group { count: 2 kind: KIND_CPU }"
        )
    ],
    "timeout-never": [queue("timeout_action: DELAY"), prioritised("timeout_action: DELAY")],
    "timeout-override-without-effect": [
        queue("allow_timeout_override: true"),
        prioritised("allow_timeout_override: true"),
    ],
    "timeout-before-delay": [
        queue("default_timeout_microseconds: 1000", "max_queue_delay_microseconds: 5000"),
        prioritised("default_timeout_microseconds: 5000", "max_queue_delay_microseconds: 5000"),
    ],
    "timeout-absurd": [queue("default_timeout_microseconds: 5000000000")],
    "queue-below-batch": [queue("max_queue_size: 7"), prioritised("max_queue_size: 1")],
    "priority-single": [dynamic("priority_levels: 1 default_priority_level: 1")],
    "slot-utilization": [
        sequences(f"direct {{ minimum_slot_utilization: {share} }}") for share in ("1.5", "-0.5")
    ],
    "candidates-negative": [oldest("max_candidate_sequences: -4")],
    "candidates-few": [oldest("max_candidate_sequences: 4")],
    "idle-absurd": [
        sequences(f"max_sequence_idle_microseconds: {idle}") for idle in (500, 7_200_000_000)
    ],
    "instances-many": [group("kind: KIND_CPU count: 100")],
    "instances-passive": [group("kind: KIND_CPU count: 1 passive: true")],
    "profile-without-plan": [group('kind: KIND_CPU profile: "0"')],
    "resource-twice": [limited('name: "R" count: 1', 'name: "R" count: 2')],
    "resource-both": [limited('name: "R" count: 1', 'name: "R" global: true count: 1')],
    "resource-empty": [limited('name: "R"'), limited("count: 2")],
    "rate-limiter-off": [limited('name: "R" count: 1'), limited()],
    "cache-off": [onnx("response_cache { enable: true }")],
    "warmup-count": [warmup("count: 5000 " + sample())],
}

# --- ensembles ------------------------------------------------------------------------------------

Edges = Sequence[tuple[str, str]]
ENSEMBLE_HEAD = 'platform: "ensemble"\nmax_batch_size: 8\n' + IO
TWO_INPUTS = GOOD + INPUT.replace('"x"', '"w"')
OTHERS = {
    "a": GOOD,
    "two": TWO_INPUTS,
    "loop": f'platform: "ensemble" {IO} ensemble_scheduling {{ step {{ model_name: "m" }} }}',
}


def step(model: str = "a", inputs: Edges = (("x", "x"),), outputs: Edges = (("y", "y"),)) -> str:
    """A step; an edge is the tensor in the model, and the tensor in the ensemble."""
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs]
    return f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}\n'


def ensemble(*steps: str, head: str = ENSEMBLE_HEAD, more: str = "") -> LintSubject:
    """An ensemble m of these steps; it has no files of its own."""
    scheduling = f"ensemble_scheduling {{ {''.join(steps)} }}\n" if steps else ""
    files = ("config.pbtxt",)
    return subject(head + scheduling + more, files=files, signature=None, others=OTHERS)


_ENSEMBLES: Mapping[str, Sequence[LintSubject]] = {
    "ensemble-platform": [
        ensemble(step(), head=ENSEMBLE_HEAD.replace('platform: "ensemble"', "")),
        ensemble(),
    ],
    "ensemble-only": [
        ensemble(step(), more="instance_group { count: 1 }"),
        ensemble(step(), more="optimization { priority: PRIORITY_MAX }"),
    ],
    "step-unknown": [ensemble(step("nobody"))],
    "step-itself": [
        ensemble(step("m")),
        ensemble(step("loop"), head=ENSEMBLE_HEAD.replace("8", "0", 1)),
    ],
    "step-input-unknown": [ensemble(step(inputs=[("x", "x"), ("q", "x")]))],
    "step-output-unknown": [
        ensemble(
            step(outputs=[("y", "y"), ("q", "z")]),
            head=ENSEMBLE_HEAD + OUTPUT.replace('"y"', '"z"'),
        )
    ],
    "step-input-missing": [ensemble(step("two"))],
    "tensor-unproduced": [
        ensemble(step(), head=ENSEMBLE_HEAD + OUTPUT.replace('"y"', '"z"')),
        ensemble(step("two", [("x", "x"), ("w", "nothing")])),
    ],
    "tensor-unused": [
        ensemble(step(), step(outputs=[("y", "left")])),
        ensemble(step(), head=ENSEMBLE_HEAD + INPUT.replace('"x"', '"u"')),
    ],
    "tensor-produced-twice": [ensemble(step(), step())],
    "input-overwritten": [ensemble(step(), step(outputs=[("y", "x")]))],
    "tensor-cycle": [
        ensemble(
            step("two", [("x", "x"), ("w", "back")], [("y", "y")]),
            step("a", [("x", "y")], [("y", "back")]),
        )
    ],
    "edge-datatype": [ensemble(step(), head=ENSEMBLE_HEAD.replace("FP32", "INT32", 1))],
    "edge-dims": [
        ensemble(step(), head=ENSEMBLE_HEAD.replace("[ 3 ]", "[ 4 ]", 1)),
        ensemble(step(), head=ENSEMBLE_HEAD.replace("[ 3 ]", "[ 3, 1 ]", 1)),
    ],
    "ensemble-batch-size": [ensemble(step(), head=ENSEMBLE_HEAD.replace("8", "16", 1))],
}
GOOD_ENSEMBLES = (
    ensemble(step()),
    ensemble(step(inputs=[("x", "x")], outputs=[("y", "mid")]), step(inputs=[("x", "mid")])),
    ensemble(step("two", [("x", "x"), ("w", "x")])),
    ensemble(step(), head=ENSEMBLE_HEAD.replace("[ 3 ]", "[ -1 ]")),
)

CASES: Mapping[str, Sequence[LintSubject]] = {**_MODELS, **_BATCHING, **_ENSEMBLES}
