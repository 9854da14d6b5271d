"""What the child process of a conversion leaves in its work folder, and what it says of itself."""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from serve.conversion.child_events import EventTeller
from serve.conversion.report import FILE, MODEL, ConversionReport
from serve.core.errors import Invalid
from serve.tensors.contracts import Case, write_contract

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
