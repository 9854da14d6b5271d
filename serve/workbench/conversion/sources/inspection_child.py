"""Looks into a source for an inspection. Runs in the child process only, which has the limits.

What can be told is told, also when something is wrong: faults are gathered, not raised.

What each flavour of a converted model would need, told from the operators of its source.

These are estimates of before: what TensorRT cannot take is told for certain from the ONNX file.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import ConversionFailed, Invalid
from serve.model_files.savedmodel_reader import read as read_savedmodel
from serve.tensors.signature import ModelSignature
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.checks import MOST, faults_of_graph, read_keras
from serve.workbench.conversion.sources.composites import faults_of_composites
from serve.workbench.conversion.sources.folders import check_folder, digest_of, size_of
from serve.workbench.conversion.sources.graph import read_graph
from serve.workbench.conversion.sources.inspection import Inspection, Need
from serve.workbench.conversion.sources.kinds import SourceKind, kind_of
from serve.workbench.conversion.sources.known import KNOWN
from serve.workbench.conversion.sources.onnx_files import check_onnx
from serve.workbench.conversion.sources.operator_scan import Operator, operators_of
from serve.workbench.conversion.sources.operators import faults_of
from serve.workbench.conversion.sources.signatures import choose_signature, faults_of_tensors

# --- needs ----------------------------------------------------------------------------------------


# The base is what TensorFlow and tf2onnx take for an empty graph, the rate what they took for a
# ResNet50: 3.2 GB for 102 MB of weights, each pass over the graph copying it.
BASE, RATE = 900 << 20, 24
ONNX_BASE, ONNX_RATE = 150 << 20, 4
_TEXTS = ("String", "LookupTable", "HashTable", "Regex", "ReduceJoin", "AsString", "Text")
_SPECTRA = ("RFFT", "IRFFT", "FFT", "IFFT", "STFT", "ComplexAbs")
_NOT_PARSED = (
    *("ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinear"),
    *("ai.onnx.ml.", "com.microsoft.", "STFT", "StringNormalizer", "TfIdfVectorizer"),
)


def memory_of(kind: SourceKind, weights: int) -> int:
    """Bytes that a conversion of so many bytes of weights takes at its peak, about."""
    base, rate = (ONNX_BASE, ONNX_RATE) if kind is SourceKind.ONNX else (BASE, RATE)
    return base + rate * weights


def needs_of(names: Iterable[str], datatypes: Iterable[str]) -> tuple[Need, ...]:
    """The three flavours. `names` are operators, of TensorFlow or of ONNX; none is no answer."""
    starts = (*_TEXTS, *_SPECTRA, *_NOT_PARSED)
    lacks = tuple(sorted({name for name in names if name.startswith(starts)}))
    if "BYTES" in set(datatypes):
        lacks = (*lacks, "BYTES (text as input or output)")
    return (
        Need("onnx", "any replica"),
        Need(
            "onnx+trt",
            "a GPU; ONNX Runtime runs the operators that TensorRT does not support",
            lacks,
        ),
        Need("plan", "the GPU architecture and TensorRT version that it was built with", lacks),
    )


# --- inspection child -----------------------------------------------------------------------------


def read(path: Path, signature: str = "", most: str = str(MOST)) -> Inspection:
    """The inspection of a source; `ConversionFailed` only where there is none that could be."""
    kind = kind_of(path)
    look: Callable[[Inspection, Path, str, int], Inspection] = {
        SourceKind.SAVEDMODEL: _savedmodel,
        SourceKind.KERAS: _keras,
        SourceKind.H5: _keras,
        SourceKind.ONNX: _onnx,
    }[kind]
    found = Inspection(path.name, kind)
    try:
        _check_size(path, kind, int(most))
        found = replace(found, size=size_of(path), digest=digest_of(path))
        return look(found, path, signature, int(most))
    except (OSError, RecursionError) as error:
        return replace(found, faults=(failed("source_corrupt", str(error)[:300]),))
    except ConversionFailed as error:
        return replace(found, faults=(error,))


def _check_size(path: Path, kind: SourceKind, most: int) -> None:
    if kind is SourceKind.SAVEDMODEL:
        check_folder(path, most=most)
    elif path.stat().st_size > most:
        raise failed("source_too_large", f"'{path.name}' has more than {most} bytes")


def _savedmodel(found: Inspection, path: Path, wanted: str, most: int) -> Inspection:
    graph = read_graph(path)
    faults = list(faults_of_graph(path, graph))
    if not graph.signatures:
        return replace(found, tags=tuple(sorted(graph.tags)), faults=tuple(faults))
    try:
        told = read_savedmodel(path)
    except Invalid as error:
        return replace(found, faults=(*faults, failed("source_corrupt", error.why)))
    signatures = told.facts["signatures"]
    found = replace(
        found,
        tags=tuple(told.facts["tags"]),
        signatures=MappingProxyType(signatures),
        facts=MappingProxyType({"tensorflow": told.facts["tensorflow"]}),
        memory=memory_of(found.kind, found.size),
    )
    try:
        chosen = choose_signature(signatures, wanted)
    except ConversionFailed as error:
        return replace(found, faults=(*faults, error))
    operators = operators_of(graph, graph.signatures[chosen])
    specs = _specs(signatures[chosen])
    faults += faults_of_composites(graph, chosen)
    faults += faults_of_tensors((*specs.inputs, *specs.outputs))
    faults += faults_of(operators, known=KNOWN)
    return replace(
        _with_needs(found, operators, specs),
        chosen=chosen,
        operators=operators,
        faults=_without_twins(faults),
    )


def _specs(page: Any) -> ModelSignature:
    return ModelSignature.from_json({"format": "savedmodel", "facts": {}, **page})


def _keras(found: Inspection, path: Path, wanted: str, most: int) -> Inspection:
    """A model of Keras has one signature, which it gets when it is exported."""
    model = read_keras(path, found.kind, most=most)
    inputs = [{"name": n, "shape": list(s), "datatype": d} for n, s, d in model.inputs]
    faults = list(model.faults)
    if wanted not in ("", "serving_default", "serve"):
        faults.append(
            failed("unknown_signature", f"'{wanted}'; its signature will be serving_default")
        )
    return replace(
        _with_needs(found, (), None),
        chosen="serving_default",
        layers=model.layers,
        faults=tuple(faults),
        memory=memory_of(found.kind, found.size),
        facts=MappingProxyType({"model": model.name, "inputs": inputs}),
    )


def _onnx(found: Inspection, path: Path, wanted: str, most: int) -> Inspection:
    external = check_onnx(path, most=most)
    try:
        reader = import_module("serve.model_files.onnx_reader")
    except ImportError as error:
        missing = failed("converter_missing", "the package onnx is not installed")
        raise missing from error
    try:
        told: ModelSignature = reader.read(path)
    except Invalid as error:
        raise failed("source_corrupt", error.why) from error
    names = told.facts["operators"]
    faults = list(faults_of_tensors((*told.inputs, *told.outputs)))
    if told.facts["checker"]:
        faults.append(failed("invalid_graph", told.facts["checker"]))
    page = told.to_json()
    return replace(
        found,
        signatures=MappingProxyType(
            {"serving_default": {"inputs": page["inputs"], "outputs": page["outputs"]}}
        ),
        chosen="serving_default",
        operators=tuple(Operator(name, 0, ()) for name in names),
        faults=tuple(faults),
        flavours=needs_of(names, {spec.datatype for spec in (*told.inputs, *told.outputs)}),
        memory=memory_of(found.kind, found.size),
        facts=MappingProxyType(
            {name: told.facts[name] for name in ("opset", "ir_version", "producer")}
            | {"external_data": list(external)}
        ),
    )


def _with_needs(
    found: Inspection, operators: tuple[Operator, ...], specs: ModelSignature | None
) -> Inspection:
    staying = [each.name for each in operators if each.count > each.vanishing]
    datatypes = {spec.datatype for spec in (*specs.inputs, *specs.outputs)} if specs else set()
    return replace(found, flavours=needs_of(staying, datatypes))


def _without_twins(faults: list[ConversionFailed]) -> tuple[ConversionFailed, ...]:
    """One of each: what a load runs, a signature may reach as well."""
    return tuple({(each.code, each.operator, each.node): each for each in faults}.values())
