"""Rules about preprocessing.json, the document that says how raw inputs become tensors.

Triton does not read it: a version with a wrong one answers tensors as well as any other.
"""

from collections.abc import Mapping

from serve.core.errors import Invalid
from serve.core.versions import PREPROCESSING
from serve.tensors.preprocessing import Preprocessing, check, parse
from serve.tensors.signature import DYNAMIC, ModelTensor
from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import datatype_of


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

    Triton does not read it. It rejects calls with such tensors.
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
