"""The catalogue of what can go wrong in a conversion: stable codes, each with what to try.

`failed(code, …)` makes the error. A fault of the gate says that the converted model is there and is
not right; it ends a command with another status than a model that cannot be converted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from serve.core.errors import ConversionFailed, GateRefused

_NO_MEMORY = (  # of Python, of C++, of the loader, of the kernel, and of the libraries
    *("MemoryError", "bad_alloc", "std::length_error", "failed to map segment"),
    *("Cannot allocate memory", "Failed to allocate memory", "OOM when allocating"),
    "ResourceExhausted",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One row: what has happened, and what to try unless something better is known."""

    code: str
    what: str
    hint: str
    is_gate: bool = False


_ROWS = (
    # The source.
    Fault(
        "source_missing",
        "there is nothing to convert",
        "the path of a SavedModel, .keras, .h5 or .onnx",
    ),
    Fault(
        "source_unknown",
        "this is no model that can be converted",
        "a SavedModel folder, .keras, .h5 or .onnx",
    ),
    Fault(
        "source_corrupt", "the model cannot be read", "save it again with the program that made it"
    ),
    Fault(
        "source_invalid",
        "the ONNX file is no valid model",
        "export it again with operator set 18; onnx.checker.check_model says more",
    ),
    Fault(
        "source_too_large",
        "the model is larger than may be read",
        "without what a prediction does not need, such as the optimiser's state",
    ),
    Fault(
        "archive_unsafe",
        "the model's files are not safe to open",
        "save it again with the program that made it; nothing else belongs in it",
    ),
    Fault(
        "pickle_refused",
        "the model holds a pickle, which runs code when it is read",
        "save weights as arrays, or export a SavedModel yourself",
    ),
    Fault(
        "lambda_layer",
        "the model holds a Lambda layer, which is code",
        "model.export('DIR') where you trust it, then convert that SavedModel",
    ),
    Fault(
        "custom_object",
        "the model needs a class that is not in it",
        "model.export('DIR') where the class is known, then convert that SavedModel",
    ),
    Fault(
        "keras_2",
        "the file was written by Keras 2, and Keras 3 does not read it",
        "tf.saved_model.save(model, 'DIR') where it was made (or with tf_keras), then convert DIR",
    ),
    Fault(
        "dangerous_operator",
        "the graph reads or writes files, or runs a program",
        "take that step out of the graph",
    ),
    # Signatures.
    Fault(
        "no_signature",
        "the model has no signature",
        "tf.saved_model.save(model, DIR, signatures=…)",
    ),
    Fault(
        "unknown_signature",
        "the model has no signature of that name",
        "servegate convert inspect PATH",
    ),
    Fault("ambiguous_signature", "the model has several signatures", "--signature NAME"),
    Fault(
        "same_name",
        "an input and an output have the same name, which ONNX has not",
        "a signature whose outputs are called otherwise",
    ),
    Fault("unsupported_input", "an input is no plain tensor", "a signature of dense tensors"),
    Fault(
        "unsupported_datatype",
        "the graph computes in a data type that ONNX Runtime or Triton lacks",
        "cast to float32 or float16",
    ),
    # The graph.
    Fault(
        "unsupported_operator",
        "an operator has no counterpart in ONNX",
        "do this step outside of the model",
    ),
    Fault(
        "python_operator",
        "the graph calls back into Python",
        "write the step with TensorFlow operators",
    ),
    Fault(
        "not_deterministic",
        "the model answers the same question differently",
        "take random operators out, or export with training=False",
    ),
    Fault(
        "invalid_graph",
        "the converted graph is not valid",
        "report it with the output of `servegate convert inspect`",
    ),
    Fault(
        "cannot_load",
        "ONNX Runtime does not load the converted graph",
        "another --precision, or report it with the output of `servegate convert inspect`",
    ),
    Fault(
        "model_too_large",
        "the converted model is larger than one ONNX file can be",
        "a smaller model; external data is not written for it",
    ),
    # Limits and machinery.
    Fault(
        "out_of_memory",
        "the conversion ran out of memory",
        "--memory with more (servegate convert inspect tells how much), or a larger machine",
    ),
    Fault(
        "no_space",
        "there is no room on the disk for the conversion",
        "TMPDIR, or --out, on a disk that has more",
    ),
    Fault("timed_out", "the conversion took too long", "--timeout with more"),
    Fault("converter_crashed", "the converter died", "the last lines it said are above"),
    Fault(
        "converter_missing",
        "TensorFlow is not installed here",
        "pip install '.[convert]' in a checkout of Servegate",
    ),
    Fault(
        "interrupted",
        "the control plane was stopped twice while it converted",
        "start it again; does the machine run out of memory?",
    ),
    Fault(
        "not_published",
        "the converted model was not published",
        "the checks and the trial of its version say what is wrong",
    ),
    Fault(
        "samples_invalid",
        "the samples do not fit the model",
        "an .npz with one array per input, rows along the first dimension",
    ),
    Fault(
        "samples_too_few",
        "nothing would verify the INT8 model",
        "--labelled with 50 rows or more, --samples with 100 or more, or --accept-unverified",
    ),
    # The gate.
    Fault(
        "contract_differs",
        "names, types or shapes differ from the signature",
        "nothing was written; report it",
        is_gate=True,
    ),
    Fault(
        "numbers_differ",
        "the converted model gives other numbers",
        "--atol and --rtol, if that is good enough for you",
        is_gate=True,
    ),
    Fault(
        "not_finite",
        "the converted model gives NaN or infinity where the source does not",
        "inputs of the right scale with --samples",
        is_gate=True,
    ),
    Fault(
        "metric_dropped",
        "the converted model is right less often",
        "another precision, more samples for calibration, or a larger --max-drop",
        is_gate=True,
    ),
    Fault(
        "unverified",
        "what was given does not verify the INT8 model",
        "samples as the model gets them in use, --labelled, or --accept-unverified",
        is_gate=True,
    ),
    Fault(
        "precision_missing",
        "the file does not hold the precision that was asked for",
        "another precision",
        is_gate=True,
    ),
    Fault(
        "fp16_overflow",
        "a value does not fit into FP16",
        "--precision fp32, or scale the layer",
        is_gate=True,
    ),
    Fault(
        "not_served",
        "Triton does not serve the converted model as the golden cases ask",
        "report it, with the log above and `servegate convert inspect`",
        is_gate=True,
    ),
    # TensorRT.
    Fault(
        "trt_unsupported",
        "TensorRT cannot take these nodes",
        "serve the ONNX file, or quantise symmetrically",
    ),
    Fault(
        "trt_profile",
        "the profile of shapes does not fit the model",
        "--profile NAME=MIN:OPT:MAX, e.g. x=1x8x8x1:8x8x8x1:32x8x8x1",
    ),
    Fault(
        "trt_missing",
        "TensorRT is not installed here",
        "the printed docker line, on a machine with the GPU that will serve",
    ),
    Fault("trt_build_failed", "TensorRT did not build a plan", "the node that it names"),
)
FAULTS: Mapping[str, Fault] = MappingProxyType({row.code: row for row in _ROWS})


def failed(
    code: str, why: str = "", *, operator: str = "", node: str = "", hint: str = ""
) -> ConversionFailed:
    """The error for a row of the catalogue; `operator` and `node` where one is to blame."""
    row = FAULTS[code]
    kind = GateRefused if row.is_gate else ConversionFailed
    return kind(
        row.code, row.what, why=why, try_this=hint or row.hint, operator=operator, node=node
    )


def lacks_memory(said: str) -> bool:
    """Whether these are the words of something that got no memory."""
    return any(words in said for words in _NO_MEMORY)
