"""Rules about outputs.json, the document that says how outputs are to be read.

Triton does not read it: a version with a wrong one answers as well as any other.
"""

from collections.abc import Mapping

from serve.core.errors import Invalid
from serve.core.versions import OUTPUTS
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import check_outputs, parse_outputs
from serve.tensors.signature import DYNAMIC
from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import datatype_of


def outputs_malformed(subject: LintSubject) -> Findings:
    """outputs.json cannot be read, or names a label file that does not exist.

    Triton does not read it. Servegate cannot show and compare the outputs of the version.
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

    Triton does not read it. Servegate would show and compare the output in a wrong way.
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
