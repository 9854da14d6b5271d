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

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.entry import write_entry
from serve.workbench.conversion.limits import ConversionLimits
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
    assert (ended["code"], ended["why"]) == ("", "")
    assert {"model.onnx", "conversion.json", "contract/contract.json"} <= set(ended["files"])


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUICK if name in BAD])
def test_a_source_that_cannot_be_converted_ends_in_its_fault(
    name: str, quick: Mapping[str, Any]
) -> None:
    ended, row = quick[name], ROWS[name]
    assert (ended["code"], ended["files"]) == (row.code, []), ended["why"]
    assert blames(row, ended["operator"], ended["node"])


def request_of(row: Row, sources: Mapping[str, Any]) -> ConversionRequest:
    return ConversionRequest(sources[row.name]["source"], signature=row.signature, nchw=row.nchw)


@pytest.mark.conversion
@pytest.mark.parametrize("name", GOOD)
def test_every_source_that_must_convert_ends_as_a_model_in_a_repository(
    name: str, sources: Mapping[str, Any], tmp_path: Path
) -> None:
    request, work, out = request_of(ROWS[name], sources), tmp_path / "work", tmp_path / "out"
    out.mkdir()
    report = asyncio.run(convert(request, work, limits=ROOMY, on_event=lambda event: None))
    write_entry(work, report, name="model", out=out)
    assert report.passed
    assert (out / "model" / "1" / "model.onnx").is_file()


@pytest.mark.conversion
@pytest.mark.parametrize("name", BAD)
def test_every_source_that_cannot_be_converted_names_what_is_to_blame(
    name: str, sources: Mapping[str, Any], tmp_path: Path
) -> None:
    row, work = ROWS[name], tmp_path / "work"
    with pytest.raises(ConversionFailed) as caught:
        asyncio.run(
            convert(request_of(row, sources), work, limits=ROOMY, on_event=lambda event: None)
        )
    assert caught.value.code == row.code
    assert blames(row, caught.value.operator, caught.value.node)
    assert caught.value.try_this
    assert not list(work.iterdir())


@pytest.mark.conversion
@pytest.mark.parametrize("name", ["transformer", "bilstm", "einsum-and-friends", "string-lookup"])
def test_a_source_that_is_converted_twice_gives_the_same_bytes(
    name: str, sources: Mapping[str, Any], tmp_path: Path
) -> None:
    request = request_of(ROWS[name], sources)
    for work in (tmp_path / "first", tmp_path / "second"):
        asyncio.run(convert(request, work, limits=ROOMY, on_event=lambda event: None))
    first, second = (tmp_path / each / "model.onnx" for each in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.conversion
def test_resnet50_converts_in_less_than_four_gigabytes(
    sources: Mapping[str, Any], tmp_path: Path
) -> None:
    request = request_of(ROWS["resnet50"], sources)
    report = asyncio.run(convert(request, tmp_path, limits=ROOMY, on_event=lambda event: None))
    assert report.peak_memory < 4e9


@pytest.mark.conversion
def test_resnet50_in_two_gigabytes_is_out_of_memory_and_says_what_to_try(
    sources: Mapping[str, Any], tmp_path: Path
) -> None:
    tight = ConversionLimits(memory=2 << 30, seconds=1500.0)
    request = request_of(ROWS["resnet50"], sources)
    with pytest.raises(ConversionFailed) as caught:
        asyncio.run(convert(request, tmp_path, limits=tight, on_event=lambda event: None))
    assert caught.value.code == "out_of_memory"
    assert "--memory" in caught.value.try_this


@pytest.mark.conversion
@pytest.mark.parametrize("name", ["digits", "resnet50", "transformer"])
def test_every_example_converts(name: str, tmp_path: Path) -> None:
    make = [sys.executable, EXAMPLES / "make.py", name, tmp_path]
    subprocess.run(make, check=True, capture_output=True)
    request = ConversionRequest(str(tmp_path / "savedmodel"))
    work = tmp_path / "work"
    report = asyncio.run(convert(request, work, limits=ROOMY, on_event=lambda event: None))
    assert report.passed
    assert report.peak_memory < 4e9
