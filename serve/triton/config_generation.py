"""config.pbtxt out of what an ONNX file says: for people who have the file and nothing else."""

from collections.abc import Mapping

from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.tensors.datatypes import BYTES, DATATYPES, Shape
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.triton.canonical import canonical_text
from serve.triton.config import of_message

DEFAULT_BATCH = 8
ZIPMAP = "ai.onnx.ml.ZipMap"
ZIPMAP_ADVICE = (
    "use skl2onnx.to_onnx(model, X[:1], options={'zipmap': False}), or servegate convert onnx FILE"
    " --name NAME --out DIR, which removes it"
)


def has_zipmap(signature: ModelSignature) -> bool:
    """Whether an ONNX file makes maps of probabilities, as skl2onnx does unless told not to."""
    return ZIPMAP in signature.facts.get("operators", ())


def generate(
    name: str,
    signature: ModelSignature,
    *,
    max_batch_size: int | None = None,
    warm_up: Mapping[str, Shape] | None = None,
) -> str:
    """The text of config.pbtxt for a file that the onnxruntime backend serves.

    Requests are batched where the first dimension of every input and output is free: up to 8,
    unless `max_batch_size` says otherwise; 0 stands for no batching. How many instances run is
    left to Triton. `warm_up`: sizes that each input can have, its batch dimension with them; then
    Triton sends zeros through the model before it is ready, as one row and as the largest batch.
    `Invalid` when the file does not say enough, or cannot be batched as asked.
    """
    if signature.format != "onnx":
        raise Invalid(
            f"no configuration can be generated for model '{name}'",
            why=f"its file is a {signature.format}, and only ONNX files are supported",
            try_this="write config.pbtxt next to the version's folder",
        )
    tensors = (*signature.inputs, *signature.outputs)
    fixed = [spec for spec in tensors if not spec.shape or spec.shape[0] != DYNAMIC]
    largest = (0 if fixed else DEFAULT_BATCH) if max_batch_size is None else max_batch_size
    if largest < 0 or (largest and fixed):
        why = f"the first dimension of '{fixed[0].name}' is not free" if fixed else "it is negative"
        raise Invalid(
            f"max_batch_size cannot be {largest}", why=why, try_this="use max_batch_size 0"
        )
    message = model_config_pb2.ModelConfig(name=name, backend="onnxruntime", max_batch_size=largest)
    for role, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            _describe(
                getattr(message, role).add(),
                spec,
                batched=largest > 0,
                zipmap=has_zipmap(signature),
            )
    if largest > 1:
        message.dynamic_batching.SetInParent()
    if warm_up is not None:
        for size in sorted({1, max(largest, 1)}):
            _warm_up(message, size, warm_up, batched=largest > 0)
    return canonical_text(of_message(message))


def _describe(
    entry: model_config_pb2.ModelInput | model_config_pb2.ModelOutput,
    spec: ModelTensor,
    *,
    batched: bool,
    zipmap: bool,
) -> None:
    if spec.datatype not in DATATYPES and zipmap:
        raise Invalid(
            f"output '{spec.name}' is a {spec.datatype} of maps, which Triton does not support",
            why="skl2onnx adds a ZipMap to the probabilities of a classifier",
            try_this=ZIPMAP_ADVICE,
        )
    if spec.datatype not in DATATYPES or spec.shape is None:
        lacks = "its shape" if spec.datatype in DATATYPES else "a data type that Triton supports"
        raise Invalid(
            f"no configuration can be generated for tensor '{spec.name}'",
            why=f"the model file does not define {lacks}",
            try_this="export the model with shapes and plain tensors",
        )
    entry.name = spec.name
    word = "STRING" if spec.datatype == BYTES else spec.datatype
    entry.data_type = model_config_pb2.DataType.Value(f"TYPE_{word}")
    dims = spec.shape[1:] if batched else spec.shape
    entry.dims.extend(dims or (1,))
    if batched and not dims:
        entry.reshape.SetInParent()  # to no dimension at all; Triton takes that with batches only


def _warm_up(
    message: model_config_pb2.ModelConfig, size: int, shapes: Mapping[str, Shape], *, batched: bool
) -> None:
    """A sample of this batch size. Zeros are ids that every table has, and texts without letters;
    what `random_data` sends are any bits, NaN among them, and an operator may refuse it."""
    sample = message.model_warmup.add(name=f"batch-of-{size}", batch_size=size)
    for entry in message.input:
        given = shapes[entry.name][1:] if batched else shapes[entry.name]
        value = sample.inputs[entry.name]
        value.data_type = entry.data_type
        value.dims.extend(given or (1,))
        value.zero_data = True
