"""The work of a conversion, from the source to the report. Runs in the child process only.

    open ─▶ scan ─▶ import ─▶ prepare ─▶ convert ─▶ finish ─▶ precision ─▶ gate ─▶ write

What can be refused is refused before TensorFlow has run anything of the model. What is imported
inside of functions is heavy, or is not needed for every source. A file that is ONNX already is not
converted, only finished; one that is given beside its source only goes through the gate.

What the child process of a conversion leaves in its work folder, and what it says of itself.
"""

import gc
import platform
import resource
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from serve.core.errors import ConversionFailed, GateRefused, Invalid
from serve.tensors.contracts import Case, write_contract
from serve.tensors.signature import ModelSignature
from serve.workbench.conversion.child_events import EventTeller
from serve.workbench.conversion.class_labels import class_labels
from serve.workbench.conversion.command import command_of
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.gate import (
    Division,
    GateVerdict,
    Runner,
    calibration,
    divide,
    read_labelled,
    read_samples,
    run_gate,
)
from serve.workbench.conversion.gate.interface import channels_first
from serve.workbench.conversion.report import FILE, MODEL, ConversionReport, StepResult
from serve.workbench.conversion.request import Precision
from serve.workbench.conversion.sources import (
    SourceKind,
    check_source,
    choose_signature,
    digest_of,
    faults_of,
    faults_of_tensors,
    scan,
    size_of,
)
from serve.workbench.conversion.task import ConversionTask

# --- work folder ----------------------------------------------------------------------------------


PACKAGES = (
    "servegate",
    "numpy",
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "tf2onnx",
    "onnx",
    "onnxruntime",
    "onnxslim",
    "ml-dtypes",
    "protobuf",
)


def write_result(work: Path, model: bytes, cases: Sequence[Case], telling: EventTeller) -> None:
    """The model and its contract; golden cases that are too large together are left out."""
    (work / MODEL).write_bytes(model)
    kept = list(cases)
    while kept:
        try:
            files = write_contract(kept)
            break
        except Invalid as error:
            kept.pop()
            telling("note", text=f"one golden case was left out: {error}")
    else:
        return
    for path, data in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)


def write_report(work: Path, report: ConversionReport) -> None:
    """The report, whole or not at all."""
    draft = work / f".{FILE}"
    draft.write_bytes(report.to_bytes())
    draft.replace(work / FILE)


def versions() -> Mapping[str, str]:
    """Of Python and of all packages that take part, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


# --- pipeline -------------------------------------------------------------------------------------


_MOST_OTHERS = 10  # further faults that are told


@dataclass(frozen=True, slots=True)
class OpenSource:
    """The source, ready to be asked. `signature` is its own, so with channels last.

    `folder`: the SavedModel, or the ONNX file. `chosen`: the name of its signature.
    """

    kind: SourceKind
    folder: Path
    chosen: str
    runner: Runner
    signature: ModelSignature
    facts: Mapping[str, Any]


def run(task: ConversionTask, telling: EventTeller) -> None:
    """Convert, judge and write; raises the fault, also the one of a gate that refuses."""
    telling("stage", stage="open")
    kind = check_source(task.source)
    source = (
        _onnx_source(task, telling)
        if kind is SourceKind.ONNX
        else _tensorflow_source(kind, task, telling)
    )
    signature = source.signature
    for fault in faults_of_tensors((*signature.inputs, *signature.outputs)):
        raise fault
    samples = read_samples(task.samples, signature) if task.samples else None
    labelled = read_labelled(task.labelled, signature) if task.labelled else None
    division: Division | None = None
    if task.request.precision is Precision.INT8 and not task.model:
        division = divide(samples, labelled, task.request.seed)
        if division.lacks and not task.request.accept_unverified:
            raise failed("samples_too_few", division.lacks)
        samples = division.judging
    model = _given(task.model) if task.model else _made(source, task, telling)
    precision: Callable[[], StepResult] | None = None
    if task.request.precision is not Precision.FP32:
        if not task.model:
            telling("stage", stage="precision")
            calibrating = division.calibrating if division else samples
            drawn = calibration(calibrating, signature, task.request.seed, source.runner)
            rows = [channels_first(inputs, task.request.nchw) for inputs in drawn]
            model = _in_precision(model, task.request.precision, rows)
        precision = _precision_step(model, task.request.precision)
    from serve.workbench.conversion.graphs.last_steps import serialized
    from serve.workbench.conversion.graphs.session import OnnxModel

    data = serialized(model)
    is_half = task.request.precision is Precision.FP16
    converted = OnnxModel(serialized(_as_on_a_gpu(model)) if is_half else data)
    verdict = run_gate(
        source.runner,
        converted,
        expected=signature,
        found=converted.signature,
        request=task.request,
        samples=samples,
        labelled=labelled,
        precision=precision,
        tell=telling,
        division=division,
    )
    telling("stage", stage="write")
    _write(task, telling, source, verdict, converted.signature, model, data)


# --- the source --------------------------------------------------------------------------------


def _onnx_source(task: ConversionTask, telling: EventTeller) -> OpenSource:
    """A file that is ONNX already: it is its own source, as ONNX Runtime runs it."""
    from serve.workbench.conversion.graphs.last_steps import serialized
    from serve.workbench.conversion.graphs.session import OnnxModel

    if task.request.nchw or task.request.signature:
        option = "--nchw" if task.request.nchw else "--signature"
        raise failed("unsupported_input", f"{option} is only for TensorFlow models", hint="omit it")
    with _blaming_the_source():
        runner = OnnxModel(serialized(_given(task.source, telling)))
    return OpenSource(
        SourceKind.ONNX, task.source, "", runner, runner.signature, {"kind": str(SourceKind.ONNX)}
    )


@contextmanager
def _blaming_the_source() -> Iterator[None]:
    """A graph that nothing has converted was wrong before: `source_invalid`."""
    try:
        yield
    except ConversionFailed as error:
        if error.code not in ("invalid_graph", "cannot_load"):
            raise
        where = {"operator": error.operator, "node": error.node}
        raise failed("source_invalid", error.why, **where) from error


def _tensorflow_source(kind: SourceKind, task: ConversionTask, telling: EventTeller) -> OpenSource:
    if kind is SourceKind.SAVEDMODEL:  # this needs no TensorFlow, and nothing of the model runs
        _refuse(task.source, _chosen(task.source, task.request.signature), None, telling)
    telling("stage", stage="import")
    from serve.workbench.conversion import translation

    telling("stage", stage="prepare")
    opened = translation.open_source(task.source, task.scratch)
    chosen = _chosen(opened.folder, task.request.signature)
    _refuse(opened.folder, chosen, translation.known_operators(), telling)
    model = translation.SourceModel(opened.folder, chosen)
    facts = {**opened.facts, "signature": chosen}
    return OpenSource(kind, opened.folder, chosen, model, model.signature, facts)


def _chosen(folder: Path, wanted: str) -> str:
    """The name of the signature; a fault when there is not one, or its tensors are not plain."""
    from serve.model_files.savedmodel_reader import read

    signatures = read(folder).facts["signatures"]
    chosen = choose_signature(signatures, wanted)
    read_one = ModelSignature.from_json({"format": "savedmodel", **signatures[chosen], "facts": {}})
    for fault in faults_of_tensors((*read_one.inputs, *read_one.outputs)):
        raise fault
    return chosen


def _refuse(
    folder: Path, signature: str, known: Collection[str] | None, telling: EventTeller
) -> None:
    """Raise the first fault of the operators that the signature reaches; tell the others."""
    faults = faults_of(scan(folder, signature), known=known)
    for other in faults[1 : 1 + _MOST_OTHERS]:
        telling("note", text=f"{other.what}: {other.why}")
    if faults:
        raise faults[0]


# --- the model ---------------------------------------------------------------------------------


def _given(path: Path, telling: EventTeller | None = None) -> Any:
    """An ONNX file with its weights; a ZipMap in it becomes the tensor of which it is made."""
    import onnx

    from serve.workbench.conversion.graphs.zipmap import remove_zipmaps

    try:
        model = onnx.load(str(path))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise failed("source_corrupt", f"'{path.name}': {error}") from error
    except Exception as error:
        if type(error).__name__ != "DecodeError":
            raise
        raise failed(
            "source_corrupt", f"'{path.name}' is truncated, or not an ONNX file"
        ) from error
    for sentence in remove_zipmaps(model):
        if telling is not None:
            telling("note", text=sentence)
    return model


def _made(source: OpenSource, task: ConversionTask, telling: EventTeller) -> Any:
    """The finished model in FP32."""
    from serve.workbench.conversion.graphs.last_steps import finish

    signature = source.signature
    if source.kind is SourceKind.ONNX:
        model = _given(source.folder)
    else:
        from serve.workbench.conversion import translation

        prepared = translation.prepare(source.folder, task.scratch)
        telling("stage", stage="convert")
        model = translation.translate(prepared, source.chosen, task.request, telling)
        signature = translation.channels_first(signature, task.request.nchw)
        gc.collect()
    telling("stage", stage="finish")
    if source.kind is not SourceKind.ONNX:
        return finish(model, signature)
    with _blaming_the_source():
        return finish(model, signature)


def _in_precision(model: Any, precision: Precision, rows: Any) -> Any:
    if precision is Precision.FP16:
        from serve.workbench.conversion.graphs.fp16 import to_fp16

        return to_fp16(model, rows)
    from serve.workbench.conversion.graphs.int8 import to_int8

    return to_int8(model, rows)


def _as_on_a_gpu(model: Any) -> Any:
    """A model in FP16 with the roundings that ONNX Runtime leaves out on a CPU."""
    from serve.workbench.conversion.graphs.fp16_emulation import rounded

    return rounded(model)


def _precision_step(model: Any, precision: Precision) -> Callable[[], StepResult]:
    from serve.workbench.conversion.graphs.contents import check_precision

    return lambda: check_precision(model, precision)


# --- the result --------------------------------------------------------------------------------


def _write(
    task: ConversionTask,
    telling: EventTeller,
    source: OpenSource,
    verdict: GateVerdict,
    signature: ModelSignature,
    model: Any,
    data: bytes,
) -> None:
    """Everything, or after a refusal the report alone; the refusal is raised."""
    refused = next((step for step in verdict.steps if not step.passed), None)
    if refused is None and not task.model:
        write_result(task.work, data, verdict.cases, telling)
        is_batched = verdict.is_batched and task.request.max_batch_size != 0
        _write_labels(task, telling, signature, model, is_batched=is_batched)
    report = ConversionReport(
        task.request,
        _facts_of_source(task.source, source),
        _facts_of_model(model, data, signature),
        verdict.is_batched,
        verdict.steps,
        telling.stages,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        versions(),
        command_of(task.request),
        (*telling.warnings, *verdict.warnings),
    )
    write_report(task.work, report)
    if refused is not None:
        raise _refusal(refused)


def _write_labels(
    task: ConversionTask,
    telling: EventTeller,
    signature: ModelSignature,
    model: Any,
    *,
    is_batched: bool,
) -> None:
    from serve.workbench.conversion.graphs.contents import last_operators

    operators = last_operators(model)
    found = class_labels(task.source, signature, operators, is_batched=is_batched)
    found.write(task.work)
    for note in found.notes:
        telling("note", text=note)


def _refusal(step: StepResult) -> ConversionFailed:
    fault = failed(step.code, step.summary)
    return (
        fault
        if isinstance(fault, GateRefused)
        else GateRefused(fault.code, fault.what, why=fault.why, try_this=fault.try_this)
    )


def _facts_of_source(path: Path, source: OpenSource) -> Mapping[str, Any]:
    specs = source.signature.to_json()
    return {
        "name": path.name,
        "digest": digest_of(path),
        "bytes": size_of(path),
        "inputs": specs["inputs"],
        "outputs": specs["outputs"],
        **source.facts,
    }


def _facts_of_model(model: Any, data: bytes, signature: ModelSignature) -> Mapping[str, Any]:
    from serve.workbench.conversion.graphs.contents import contents

    specs = signature.to_json()
    return {
        "digest": sha256(data).hexdigest(),
        "bytes": len(data),
        "opset": {each.domain or "ai.onnx": each.version for each in model.opset_import},
        "ir_version": model.ir_version,
        "inputs": specs["inputs"],
        "outputs": specs["outputs"],
        "contents": dict(contents(model)),
    }
