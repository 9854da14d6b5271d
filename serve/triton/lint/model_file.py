"""Rules that hold the configured inputs and outputs against those of the model file."""

from collections.abc import Iterator
from typing import Any

from serve.tensors.datatypes import DATATYPES
from serve.tensors.signature import DYNAMIC, ModelTensor
from serve.triton.config_generation import ZIPMAP_ADVICE, has_zipmap
from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import (
    config_word,
    datatype_of,
    datatype_word,
    is_shape,
    roles,
    shape_of,
    shown,
)


def datatype_unsupported(subject: LintSubject) -> Findings:
    """An input or output of the model file has a type that Triton does not support.

    Triton cannot load the model, because config.pbtxt cannot describe it.
    """
    if subject.signature is None or subject.signature.format != "onnx":
        return
    for role, specs in (("input", subject.inputs), ("output", subject.outputs)):
        for spec in specs.values():
            if spec.datatype not in DATATYPES:
                is_map = role == "output" and has_zipmap(subject.signature)
                yield LintFinding(
                    f"{role} '{spec.name}'",
                    f"in the model file it is a {spec.datatype}, which Triton does not support",
                    ZIPMAP_ADVICE if is_map else "cast it in the model, and export again",
                )


def input_missing(subject: LintSubject) -> Findings:
    """The configuration lacks an input that the model file requires.

    The onnxruntime backend refuses to load the model. If the configuration has no `input` at all,
    the backend adds all inputs.
    """
    message = subject.message
    if not all(entry.name for entry in message.input) or not message.input:
        return
    sequence = message.sequence_batching
    filled = {entry.name for entry in message.input}
    filled |= {control.name for control in sequence.control_input}
    filled |= {state.input_name for state in sequence.state}
    filled |= {name for each in message.batch_input for name in each.target_name}
    for name, spec in subject.inputs.items():
        if name not in filled:
            yield LintFinding(
                f"input '{name}'",
                "the model file requires it, but the configuration does not have it",
                f'add input {{ name: "{name}" data_type: {config_word(spec.datatype)} dims: … }}',
            )


def input_unknown(subject: LintSubject) -> Findings:
    """The configuration has an input that the model file does not have.

    The onnxruntime backend refuses to load the model: `the model file has no input 'z', only x`.
    """
    known = {**subject.inputs, **subject.defaulted}
    for entry in subject.message.input if known else ():
        if entry.name and entry.name not in known:
            yield LintFinding(
                f"input '{entry.name}'",
                f"the model file has no such input, only {', '.join(known)}",
                "use the name in the model file",
            )


def output_unknown(subject: LintSubject) -> Findings:
    """The configuration has an output that the model file does not have.

    The onnxruntime backend refuses to load the model: `the model file has no output 'z', only y`.
    """
    states = {state.output_name for state in subject.message.sequence_batching.state}
    batched = {name for each in subject.message.batch_output for name in each.target_name}
    for entry in subject.message.output if subject.outputs else ():
        if entry.name and entry.name not in {*subject.outputs, *states, *batched}:
            yield LintFinding(
                f"output '{entry.name}'",
                f"the model file has no such output, only {', '.join(subject.outputs)}",
                "use the name in the model file",
            )


def _pairs(subject: LintSubject) -> Iterator[tuple[str, Any, ModelTensor]]:
    """Role, configured tensor and the model file's, of those that both have."""
    known = {
        "input": {**subject.inputs, **subject.defaulted},
        "output": dict(subject.outputs),
    }
    for role, entry in roles(subject):
        if entry.name in known[role]:
            yield role, entry, known[role][entry.name]


def datatype_differs(subject: LintSubject) -> Findings:
    """The data type differs from the model file.

    The onnxruntime backend refuses to load the model; other backends misread the bytes.
    """
    for role, entry, spec in _pairs(subject):
        configured = datatype_of(entry.data_type)
        if entry.data_type and spec.datatype in DATATYPES and configured != spec.datatype:
            yield LintFinding(
                f"{role} '{entry.name}'.data_type",
                f"it is {datatype_word(entry.data_type)}, but {config_word(spec.datatype)} in the "
                "model file",
                f"use {config_word(spec.datatype)}",
            )


def _comparable(subject: LintSubject) -> Iterator[tuple[str, Any, list[int], list[int]]]:
    """Role, tensor, configured and declared shape where both are whole; scalars are left out."""
    largest = subject.message.max_batch_size
    for role, entry, spec in _pairs(subject) if largest >= 0 else ():
        ragged = role == "input" and entry.allow_ragged_batch
        if is_shape(entry.dims) and spec.shape and not ragged:
            yield role, entry, shape_of(entry, largest), list(spec.shape)


def _holds_batch(largest: int, configured: list[int], declared: list[int]) -> bool:
    return (
        largest > 0
        and len(configured) == len(declared) + 1
        and _agree(configured[1:], declared, strictly=False)
    )


def _agree(configured: list[int], declared: list[int], *, strictly: bool) -> bool:
    if strictly:
        return configured == declared
    return len(configured) == len(declared) and all(
        size in (DYNAMIC, given) for given, size in zip(configured, declared, strict=True)
    )


def dims_hold_batch(subject: LintSubject) -> Findings:
    """`dims` includes the batch dimension, although `max_batch_size` is greater than 0.

    Triton adds the batch dimension itself, so the model gets one dimension too many.
    """
    for role, entry, configured, declared in _comparable(subject):
        if _holds_batch(subject.message.max_batch_size, configured, declared):
            yield LintFinding(
                f"{role} '{entry.name}'.dims",
                f"{shown(configured[1:])} includes the batch dimension, which max_batch_size "
                f"{subject.message.max_batch_size} adds",
                f"set dims: {shown(configured[2:])}",
            )


def dims_count(subject: LintSubject) -> Findings:
    """The number of dimensions differs from the model file.

    The onnxruntime backend refuses to load the model.
    """
    largest = subject.message.max_batch_size
    for role, entry, configured, declared in _comparable(subject):
        batch = _holds_batch(largest, configured, declared)
        if len(configured) != len(declared) and not batch:
            wanted = declared[1:] if largest > 0 else declared
            yield LintFinding(
                f"{role} '{entry.name}'.dims",
                f"with the batch dimension it is {shown(configured)}, but the model file has "
                f"{shown(declared)}"
                if largest > 0
                else f"it is {shown(configured)}, but the model file has {shown(declared)}",
                f"set dims: {shown(wanted)}",
            )


def dims_differ(subject: LintSubject) -> Findings:
    """The size of a dimension differs from the model file.

    The backend refuses to load the model. Exception: an input may set a fixed size for a dimension
    that is dynamic in the ONNX file. The dimensions of outputs must match. `batch-dimension-fixed`
    checks the batch dimension.
    """
    largest = subject.message.max_batch_size
    is_onnx = subject.signature is not None and subject.signature.format == "onnx"
    for role, entry, configured, declared in _comparable(subject):
        if len(configured) != len(declared):
            continue
        skipped = 1 if largest > 0 else 0
        strictly = role == "output" and is_onnx
        if not _agree(configured[skipped:], declared[skipped:], strictly=strictly):
            yield LintFinding(
                f"{role} '{entry.name}'.dims",
                f"it is {shown(configured[skipped:])}, but {shown(declared[skipped:])} in the "
                "model file",
                f"set dims: {shown(declared[skipped:])}",
            )


def optional_without_default(subject: LintSubject) -> Findings:
    """An input is optional in the configuration, but the model file requires it.

    The onnxruntime backend refuses to load the model.
    """
    for entry in subject.message.input:
        if entry.optional and entry.name in subject.inputs:
            yield LintFinding(
                f"input '{entry.name}'.optional",
                "the model file has no default for it",
                "remove optional",
            )


def default_not_optional(subject: LintSubject) -> Findings:
    """An input that has a default in the model file is not marked as optional.

    Servegate's onnxruntime backend refuses to load the model, because Triton would require the
    input in every call.
    """
    for entry in subject.message.input:
        if not entry.optional and entry.name in subject.defaulted:
            yield LintFinding(
                f"input '{entry.name}'.optional",
                "the model file has a default for it",
                "set optional: true, or remove the input",
            )


def optional_batched(subject: LintSubject) -> Findings:
    """An optional input is used together with batching.

    Servegate's onnxruntime backend refuses to load the model, because calls with and without the
    input cannot be batched together.
    """
    for entry in subject.message.input:
        batched = subject.message.max_batch_size > 0
        if entry.optional and batched and subject.backend == "onnxruntime":
            yield LintFinding(
                f"input '{entry.name}'.optional",
                "requests with and without it cannot share a batch",
                "set max_batch_size: 0",
            )
