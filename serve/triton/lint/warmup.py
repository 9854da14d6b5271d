"""Rules about warm-up: the samples that Triton sends through a model before it is ready."""

from serve.core.errors import Invalid
from serve.tensors.datatypes import numpy_dtype
from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import datatype_of, datatype_word, shown

MANY = 1000  # runs of one sample
_KINDS = frozenset({"zero_data", "random_data", "input_data_file"})


def warmup_input_unknown(subject: LintSubject) -> Findings:
    """A warm-up sample has an input that the model does not have.

    Triton fails to load the model: `failed to run warmup sample`. Triton 2.51 sometimes crashes
    (SIGSEGV).
    """
    known = {entry.name for entry in subject.message.input}
    for sample in subject.message.model_warmup if known else ():
        for name in sorted(sample.inputs):
            if name not in known:
                yield LintFinding(
                    f"model_warmup '{sample.name}'",
                    f"there is no input '{name}', only {', '.join(sorted(known))}",
                    "use the inputs of the configuration",
                )


def warmup_input_missing(subject: LintSubject) -> Findings:
    """A warm-up sample lacks an input.

    Triton fails to load the model: `missing required input(s)`.
    """
    wanted = [entry.name for entry in subject.message.input if not entry.optional]
    for sample in subject.message.model_warmup:
        for name in wanted:
            if name not in sample.inputs:
                yield LintFinding(
                    f"model_warmup '{sample.name}'",
                    f"input '{name}' is missing",
                    f'add inputs {{ key: "{name}" value {{ … }} }}',
                )


def warmup_differs(subject: LintSubject) -> Findings:
    """The data type or shape of a warm-up sample differs from the input's.

    Triton fails to load the model: `unexpected shape for input`, or `inference input 'x' data-type
    is`.
    """
    entries = {entry.name: entry for entry in subject.message.input}
    for sample in subject.message.model_warmup:
        for name, value in sorted(sample.inputs.items()):
            entry = entries.get(name)
            if entry is None:
                continue
            field = f"model_warmup '{sample.name}' input '{name}'"
            if value.data_type != entry.data_type:
                wanted = datatype_word(entry.data_type)
                why = f"it is {datatype_word(value.data_type)}, but the input is {wanted}"
                yield LintFinding(field, why, f"use {wanted}")
            given = list(value.dims)
            if len(given) != len(entry.dims) or any(
                size < 1 or wanted not in (-1, size)
                for size, wanted in zip(given, entry.dims, strict=True)
            ):
                yield LintFinding(
                    field,
                    f"dims is {shown(given)}, but the input has {shown(entry.dims)}",
                    "use fixed sizes that fit the input, without the batch dimension",
                )


def warmup_batch_size(subject: LintSubject) -> Findings:
    """A warm-up sample has a larger batch than `max_batch_size`.

    Triton fails to load the model: `batch size 16 for 'm', max allowed is 8`.
    """
    largest = subject.message.max_batch_size
    for sample in subject.message.model_warmup:
        if sample.batch_size > max(largest, 1):
            yield LintFinding(
                f"model_warmup '{sample.name}'.batch_size",
                f"{sample.batch_size} is above max_batch_size {largest}",
                f"set batch_size: {max(largest, 1)}",
            )


def warmup_file_missing(subject: LintSubject) -> Findings:
    """The data file of a warm-up sample is not in the folder `warmup` next to config.pbtxt.

    Triton fails to load the model: `failed to open text file for read …/warmup/x.raw`.
    """
    for sample in subject.message.model_warmup:
        for name, value in sorted(sample.inputs.items()):
            path = f"warmup/{value.input_data_file}"
            if value.input_data_file and path not in subject.model_files:
                yield LintFinding(
                    f"model_warmup '{sample.name}' input '{name}'",
                    f"there is no file '{path}'",
                    "add the file, or set zero_data: true",
                )


def warmup_data_missing(subject: LintSubject) -> Findings:
    """A warm-up sample does not define the data of an input.

    Triton fails to load the model: `warmup setting expects input 'x' to have input_data_type set`.
    """
    for sample in subject.message.model_warmup:
        for name, value in sorted(sample.inputs.items()):
            if value.WhichOneof("input_data_type") not in _KINDS:
                yield LintFinding(
                    f"model_warmup '{sample.name}' input '{name}'",
                    "it does not define which data to send",
                    "set zero_data: true, random_data: true, or input_data_file",
                )


def warmup_random_text(subject: LintSubject) -> Findings:
    """A warm-up sample uses random data for a string input.

    Triton sends empty strings instead.
    """
    for sample in subject.message.model_warmup:
        for name, value in sorted(sample.inputs.items()):
            try:
                is_text = numpy_dtype(datatype_of(value.data_type)).hasobject
            except Invalid:
                continue
            if value.random_data and is_text:
                yield LintFinding(
                    f"model_warmup '{sample.name}' input '{name}'",
                    "Triton sends empty strings instead of random text",
                    "use input_data_file with your own texts",
                )


def warmup_count(subject: LintSubject) -> Findings:
    """A warm-up sample is sent more than 1000 times.

    The model does not become ready until all of these requests are done. On every replica, each
    configuration change is delayed by the same time.
    """
    for sample in subject.message.model_warmup:
        if sample.count > MANY:
            yield LintFinding(
                f"model_warmup '{sample.name}'.count",
                f"it runs {sample.count} times before the model is ready",
                "set count: 3",
            )
