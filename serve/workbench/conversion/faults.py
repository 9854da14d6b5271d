"""The catalogue of what can go wrong in a conversion: stable codes, each with what to try.

`failed(code, …)` makes the error. A fault of the gate says that the converted model is there and is
not right; it ends a command with another status than a model that cannot be converted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from serve.core.errors import ConversionFailed, GateRefused


@dataclass(frozen=True, slots=True)
class ConversionFault:
    """One row: what has happened, and what to try unless something better is known."""

    code: str
    what: str
    hint: str
    is_gate: bool = False


_ROWS = (
    # The source.
    ConversionFault(
        "source_missing",
        "the source was not found",
        "pass the path of a SavedModel folder, or of a .keras, .h5 or .onnx file",
    ),
    ConversionFault(
        "source_unknown",
        "this is not a model in a supported format",
        "pass a SavedModel folder, or a .keras, .h5 or .onnx file",
    ),
    ConversionFault(
        "source_corrupt",
        "the model cannot be read",
        "save it again with the program that created it",
    ),
    ConversionFault(
        "source_invalid",
        "the ONNX file is not a valid model",
        "export it again with opset 18, and check it with onnx.checker.check_model",
    ),
    ConversionFault(
        "source_too_large",
        "the model exceeds a size limit",
        "leave out what inference does not need, such as the optimiser's state",
    ),
    ConversionFault(
        "archive_unsafe",
        "the model's files are unsafe to open, for example because they refer to other files",
        "save the model again with the program that created it, and add no other files",
    ),
    ConversionFault(
        "pickle_refused",
        "the model contains a pickle, which runs code when it is loaded",
        "save the weights as arrays, or export a SavedModel yourself",
    ),
    ConversionFault(
        "lambda_layer",
        "the model contains a Lambda layer, which is code",
        "if you trust the model, run model.export('DIR') and convert the resulting SavedModel",
    ),
    ConversionFault(
        "custom_object",
        "the model needs a class that the file does not contain",
        "run model.export('DIR') where the class is defined, then convert that SavedModel",
    ),
    ConversionFault(
        "keras_2",
        "Keras 2 wrote the file, and Keras 3 cannot load it",
        "run tf.saved_model.save(model, 'DIR') in Keras 2 (or with tf_keras), then convert DIR",
    ),
    ConversionFault(
        "dangerous_operator",
        "the graph accesses files or the network, or runs native code",
        "remove this step from the graph",
    ),
    # Signatures.
    ConversionFault(
        "no_signature",
        "the model has no signature",
        "save it with tf.saved_model.save(model, DIR, signatures=…)",
    ),
    ConversionFault(
        "unknown_signature",
        "the model has no signature with this name",
        "list the signatures with servegate convert inspect PATH",
    ),
    ConversionFault(
        "ambiguous_signature",
        "the model has several signatures",
        "choose one with --signature NAME",
    ),
    ConversionFault(
        "same_name",
        "an input and an output have the same name, which ONNX does not allow",
        "choose a signature whose inputs and outputs have different names",
    ),
    ConversionFault(
        "unsupported_input",
        "an input or output is not supported",
        "use a signature with dense tensors",
    ),
    ConversionFault(
        "unsupported_datatype",
        "ONNX Runtime or Triton does not support a data type of the graph",
        "cast to float32 or float16",
    ),
    # The graph.
    ConversionFault(
        "unsupported_operator",
        "an operator has no ONNX equivalent",
        "move this operation out of the model",
    ),
    ConversionFault(
        "python_operator",
        "the graph calls a Python function",
        "rewrite this step with TensorFlow operators",
    ),
    ConversionFault(
        "not_deterministic",
        "the model gives different results for the same input",
        "remove random operators, or export with training=False",
    ),
    ConversionFault(
        "invalid_graph",
        "the converted graph is not valid",
        "report this as a bug, with the output of `servegate convert inspect`",
    ),
    ConversionFault(
        "cannot_load",
        "ONNX Runtime cannot load the converted graph",
        "use another --precision, or report this as a bug, with the output of `servegate convert "
        "inspect`",
    ),
    ConversionFault(
        "model_too_large",
        "the converted model does not fit into one ONNX file",
        "use a smaller model; weights in separate files are not supported",
    ),
    # Limits and machinery.
    ConversionFault(
        "out_of_memory",
        "the conversion ran out of memory",
        "use a larger --memory (servegate convert inspect estimates it), or a larger machine",
    ),
    ConversionFault(
        "no_space", "the disk is full", "set TMPDIR or --out to a disk with more space"
    ),
    ConversionFault("timed_out", "the conversion took too long", "increase --timeout"),
    ConversionFault(
        "converter_crashed", "the converter crashed", "see the last lines of its output"
    ),
    ConversionFault(
        "converter_missing",
        "a package that conversions need is not installed",
        "run pip install '.[convert]' in a checkout of Servegate",
    ),
    ConversionFault(
        "interrupted",
        "the control plane stopped or crashed twice during the conversion",
        "check whether the machine runs out of memory, then start the conversion again",
    ),
    ConversionFault(
        "not_published",
        "the converted model was not published",
        "see the lint findings and the quarantine result of the version",
    ),
    ConversionFault(
        "samples_invalid",
        "the samples do not fit the model",
        "use an .npz file with one array per input and one row per sample",
    ),
    ConversionFault(
        "samples_too_few",
        "there are not enough rows to verify the INT8 model",
        "pass --labelled with 50 rows or more, --samples with 100 or more, or --accept-unverified",
    ),
    # The gate.
    ConversionFault(
        "contract_differs",
        "names, types or shapes of inputs or outputs differ from the signature",
        "report this as a bug; nothing was written",
        is_gate=True,
    ),
    ConversionFault(
        "numbers_differ",
        "the converted model gives different results",
        "use a larger --atol and --rtol if you accept larger errors",
        is_gate=True,
    ),
    ConversionFault(
        "not_finite",
        "the converted model gives NaN or infinity where the source does not",
        "pass --samples with inputs of a realistic scale",
        is_gate=True,
    ),
    ConversionFault(
        "metric_dropped",
        "the accuracy dropped by more than --max-drop",
        "use another precision, more samples for calibration, or a larger --max-drop",
        is_gate=True,
    ),
    ConversionFault(
        "unverified",
        "the given rows are not varied enough to verify the INT8 model",
        "pass samples from production, --labelled, or --accept-unverified",
        is_gate=True,
    ),
    ConversionFault(
        "precision_missing",
        "the converted model does not use the requested precision",
        "use another precision",
        is_gate=True,
    ),
    ConversionFault(
        "fp16_overflow",
        "a value does not fit into FP16",
        "use --precision fp32, or scale the layer",
        is_gate=True,
    ),
    ConversionFault(
        "not_served",
        "Triton does not serve the converted model correctly",
        "report this as a bug, with the log and the output of `servegate convert inspect`",
        is_gate=True,
    ),
    # TensorRT.
    ConversionFault(
        "trt_unsupported",
        "TensorRT does not support some nodes of the graph",
        "serve the ONNX file, or quantise symmetrically",
    ),
    ConversionFault(
        "trt_profile",
        "the shape profile does not fit the model",
        "pass --profile NAME=MIN:OPT:MAX, for example x=1x8x8x1:8x8x8x1:32x8x8x1",
    ),
    ConversionFault(
        "trt_missing",
        "TensorRT is not installed",
        "run the printed docker command on a machine with the same GPU model as the replicas",
    ),
    ConversionFault(
        "trt_build_failed",
        "TensorRT did not build the plan",
        "check the node that is named in the message",
    ),
)
FAULTS: Mapping[str, ConversionFault] = MappingProxyType({row.code: row for row in _ROWS})


def failed(
    code: str, why: str = "", *, operator: str = "", node: str = "", hint: str = ""
) -> ConversionFailed:
    """The error for a row of the catalogue; `operator` and `node` where one is to blame."""
    row = FAULTS[code]
    kind = GateRefused if row.is_gate else ConversionFailed
    return kind(
        row.code, row.what, why=why, try_this=hint or row.hint, operator=operator, node=node
    )
