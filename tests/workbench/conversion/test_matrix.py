"""What must convert converts and passes the gate; what cannot ends in its fault.

The rows are those of `zoo/`. A representative set goes through the pipeline in one process, so that
TensorFlow is imported once; the whole matrix goes as users go, each row in a child process of its
own and into a repository.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.entry import write_entry
from serve.workbench.conversion.limits import ConversionLimits
from serve.workbench.conversion.report import ConversionReport
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.conversion.runner import convert

from .zoo import ROWS, Row
from .zoo.together import MARK

TESTS = Path(__file__).parents[2]
EXAMPLES = TESTS.parent / "examples" / "conversion"
ROOMY = ConversionLimits(memory=12 << 30, seconds=1500.0)
QUICK = [name for name, row in ROWS.items() if not row.is_slow]
GOOD = [name for name, row in ROWS.items() if not row.code]
BAD = [name for name, row in ROWS.items() if row.code]
FOUND_LATER = ("same-name", "v1-dropout-on", "keras2-only")  # than by looking at the source


def together(folder: Path, names: Iterable[str], *options: str) -> Mapping[str, Any]:
    """How these rows end when one process does them all."""
    said = subprocess.run(
        [sys.executable, "-m", "workbench.conversion.zoo.together", str(folder), *names, *options],
        env=os.environ | {"PYTHONPATH": str(TESTS), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    pages = [json.loads(line[1:]) for line in said.stdout.splitlines() if line.startswith(MARK)]
    ended = {page["row"]: page for page in pages if "row" in page}
    assert set(ended) == set(names), said.stderr[-3000:]
    return ended


def blames(row: Row, operator: str, node: str) -> bool:
    """Whether the fault names what the row says, where it says something."""
    return (not row.operator or operator == row.operator) and row.node in node


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return together(tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return together(tmp_path_factory.mktemp("sources"), ROWS, "--build")


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUICK if name in GOOD])
def test_a_source_converts_and_passes_the_gate(name: str, quick: Mapping[str, Any]) -> None:
    ended = quick[name]
    assert (ended["code"], ended["why"], ended["inspected"]) == ("", "", [])
    assert {"model.onnx", "conversion.json", "contract/contract.json"} <= set(ended["files"])


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUICK if name in BAD])
def test_what_cannot_be_converted_ends_in_its_fault(name: str, quick: Mapping[str, Any]) -> None:
    ended, row = quick[name], ROWS[name]
    assert (ended["code"], ended["files"]) == (row.code, []), ended["why"]
    assert blames(row, ended["operator"], ended["node"])
    assert ended["inspected"] == ([] if name in FOUND_LATER else [row.code])
    assert ended["beside"] == []  # no code of the source has written anything


def request_of(name: str, sources: Mapping[str, Any]) -> ConversionRequest:
    row = ROWS[name]
    return ConversionRequest(sources[name]["source"], signature=row.signature, nchw=row.nchw)


def converted(
    request: ConversionRequest, work: Path, limits: ConversionLimits = ROOMY
) -> ConversionReport:
    return asyncio.run(convert(request, work, limits=limits, on_event=lambda event: None))


@pytest.mark.conversion
@pytest.mark.parametrize("name", GOOD)
def test_every_source_that_must_convert_ends_as_a_model_in_a_repository(
    name: str, sources: Mapping[str, Any], tmp_path: Path
) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    out.mkdir()
    report = converted(request_of(name, sources), work)
    write_entry(work, report, name="model", out=out)
    assert report.passed
    assert (out / "model" / "1" / "model.onnx").is_file()


@pytest.mark.conversion
@pytest.mark.parametrize("name", BAD)
def test_every_source_that_cannot_be_converted_names_what_is_to_blame(
    name: str, sources: Mapping[str, Any], tmp_path: Path
) -> None:
    fault = refusal(ConversionFailed, converted, request_of(name, sources), tmp_path)
    assert fault.code == ROWS[name].code
    assert blames(ROWS[name], fault.operator, fault.node)
    assert fault.try_this
    assert not list(tmp_path.iterdir())


@pytest.mark.conversion
@pytest.mark.parametrize("name", ["transformer", "bilstm", "einsum-and-friends", "string-lookup"])
def test_a_source_that_is_converted_twice_gives_the_same_bytes(
    name: str, sources: Mapping[str, Any], tmp_path: Path
) -> None:
    works = tmp_path / "first", tmp_path / "second"
    for work in works:
        converted(request_of(name, sources), work)
    first, second = ((work / "model.onnx").read_bytes() for work in works)
    assert first == second


@pytest.mark.conversion
def test_resnet50_in_two_gigabytes_is_out_of_memory_and_says_what_to_try(
    sources: Mapping[str, Any], tmp_path: Path
) -> None:
    tight = ConversionLimits(memory=2 << 30, seconds=1500.0)
    fault = refusal(ConversionFailed, converted, request_of("resnet50", sources), tmp_path, tight)
    assert fault.code == "out_of_memory"
    assert "--memory" in fault.try_this


@pytest.mark.conversion
@pytest.mark.parametrize("name", ["digits", "resnet50", "transformer"])
def test_every_example_converts(name: str, tmp_path: Path) -> None:
    make = [sys.executable, EXAMPLES / "make.py", name, tmp_path]
    subprocess.run(make, check=True, capture_output=True)
    report = converted(ConversionRequest(str(tmp_path / "savedmodel")), tmp_path / "work")
    assert report.passed
    assert report.peak_memory < 4e9
