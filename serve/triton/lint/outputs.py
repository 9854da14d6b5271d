"""Rules about outputs.json, the document that says how outputs are to be read.

Triton does not read it: a version with a wrong one answers as well as any other.

Rules about preprocessing.json, the document that says how raw inputs become tensors.

Triton does not read it: a version with a wrong one answers tensors as well as any other.
"""

from collections.abc import Mapping

from serve.core.errors import Invalid
from serve.core.versions import OUTPUTS, PREPROCESSING
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import check_outputs, parse_outputs
from serve.tensors.preprocessing import Preprocessing, check, parse
from serve.tensors.signature import DYNAMIC, ModelTensor
from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import datatype_of

# --- preprocessing --------------------------------------------------------------------------------


def preprocessing_malformed(subject: LintSubject) -> Findings:
    """preprocessing.json cannot be read.

    Triton does not read it. Clients cannot send images or texts to the version.
    """
    try:
        _recorded(subject)
    except Invalid as error:
        yield LintFinding(PREPROCESSING, f"{error.what}: {error.why}", "see docs/preprocessing.md")


def preprocessing_unfit(subject: LintSubject) -> Findings:
    """The tensor that preprocessing.json describes does not match the model's input.

    Triton does not read this file, but it rejects calls with such tensors.
    """
    try:
        recorded = _recorded(subject)
    except Invalid:
        return
    inputs = _inputs(subject)
    if recorded is not None and inputs:
        for sentence in check(recorded, inputs):
            fix = "use steps that produce the input's shape and data type"
            yield LintFinding(PREPROCESSING, sentence, fix)


def _recorded(subject: LintSubject) -> Preprocessing | None:
    return parse(subject.preprocessing) if subject.preprocessing else None


def _inputs(subject: LintSubject) -> Mapping[str, ModelTensor]:
    """The inputs as callers see them: those of the configuration, else of the model file."""
    message = subject.message
    if not message.input:
        return subject.inputs
    batch = (DYNAMIC,) if message.max_batch_size > 0 else ()
    return {
        entry.name: ModelTensor(entry.name, datatype_of(entry.data_type), (*batch, *entry.dims))
        for entry in message.input
    }


# --- outputs --------------------------------------------------------------------------------------


def outputs_malformed(subject: LintSubject) -> Findings:
    """outputs.json cannot be read, or names a label file that does not exist.

    Triton does not read it. Servegate cannot show or compare the outputs of the version.
    """
    if not subject.output_kinds:
        return
    try:
        declared = parse_outputs(subject.output_kinds)
    except Invalid as error:
        yield LintFinding(OUTPUTS, f"{error.what}: {error.why}", "see docs/outputs.md")
        return
    for name, one in declared.items():
        if one.labels and one.labels not in subject.model_files:
            why = f"the label file '{one.labels}' of output '{name}' does not exist"
            yield LintFinding(OUTPUTS, why, f"put {one.labels} next to config.pbtxt")


def outputs_unfit(subject: LintSubject) -> Findings:
    """The kind that outputs.json declares does not fit the data type or shape of the output.

    Triton does not read it. Servegate would show and compare the output incorrectly.
    """
    try:
        declared = parse_outputs(subject.output_kinds) if subject.output_kinds else {}
    except Invalid:
        return
    outputs = _outputs(subject)
    if declared and outputs:
        decoupled = bool(subject.message.model_transaction_policy.decoupled)
        for sentence, fix in check_outputs(declared, outputs, is_decoupled=decoupled):
            yield LintFinding(OUTPUTS, sentence, fix)


def _outputs(subject: LintSubject) -> Mapping[str, TensorSpec]:
    """The outputs as callers see them: those of the configuration, else of the model file."""
    message = subject.message
    if message.output:
        batch = (DYNAMIC,) if message.max_batch_size > 0 else ()
        return {
            entry.name: TensorSpec(entry.name, datatype_of(entry.data_type), (*batch, *entry.dims))
            for entry in message.output
        }
    return {
        name: TensorSpec(name, one.datatype, one.shape)
        for name, one in subject.outputs.items()
        if one.shape is not None
    }
