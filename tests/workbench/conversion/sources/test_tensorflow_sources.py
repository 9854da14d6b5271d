"""What TensorFlow and Keras really write, and what they know, held against our reading of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.sources import check_source, faults_of, scan
from serve.workbench.conversion.sources.dangers import DANGEROUS, PYTHON, RANDOM
from serve.workbench.conversion.sources.inspection import Inspection
from serve.workbench.conversion.sources.inspection_child import read
from serve.workbench.conversion.sources.known import KNOWN, LAYERS
from serve.workbench.conversion.sources.operators import REWRITTEN

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("written_by_tensorflow.py")
Made = tuple[Path, dict[str, list[str]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A folder of models that TensorFlow has written, and what it and Keras know."""
    folder = tmp_path_factory.mktemp("sources")
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = next(line for line in ended.stdout.splitlines() if line.startswith(">"))
    return folder, json.loads(told[1:])


def codes(found: Inspection) -> set[str]:
    return {fault.code for fault in found.faults}


def test_the_lists_of_known_operators_and_layers_are_those_of_the_converter_and_of_keras(
    made: Made,
) -> None:
    real = set(made[1]["known"]) - REWRITTEN - RANDOM
    assert real == KNOWN - REWRITTEN - RANDOM
    assert not KNOWN & (DANGEROUS | PYTHON)
    assert set(made[1]["layers"]) <= LAYERS


@pytest.mark.parametrize("name", ["lstm", "cnn", "cnn.keras", "cnn.h5", "words"])
def test_what_converts_has_no_faults(name: str, made: Made) -> None:
    found = read(made[0] / name)
    assert found.faults == ()
    assert found.chosen == "serving_default"
    check_source(made[0] / name)


@pytest.mark.parametrize(
    ("signature", "code", "node"),
    [
        ("writes", "dangerous_operator", "WriteFile"),
        ("deep", "unsupported_operator", "map/while/cond/Svd"),
        ("calls", "python_operator", "PyFunc"),
        ("draws", "not_deterministic", "random_normal/RandomStandardNormal"),
        ("halves", "unsupported_datatype", "MatMul"),
    ],
)
def test_each_fault_of_a_graph_is_found(signature: str, code: str, node: str, made: Made) -> None:
    (fault,) = faults_of(scan(made[0] / "many", signature), known=KNOWN)
    assert (fault.code, fault.node) == (code, node)


def test_a_harmless_signature_beside_dangerous_ones_is_fine(made: Made) -> None:
    assert faults_of(scan(made[0] / "many", "plain"), known=KNOWN) == ()
    check_source(made[0] / "many")
    assert codes(read(made[0] / "many", "ragged")) == {"unsupported_input"}


def test_a_table_that_writes_while_it_is_loaded_is_refused(made: Made) -> None:
    (made[0] / "written").unlink()
    fault = refusal(ConversionFailed, check_source, made[0] / "evil")
    assert (fault.code, fault.operator) == ("dangerous_operator", "WriteFile")
    assert not (made[0] / "written").exists()


@pytest.mark.parametrize("name", ["code.keras", "code.h5"])
def test_a_lambda_that_keras_has_written_is_found(name: str, made: Made) -> None:
    assert codes(read(made[0] / name)) == {"lambda_layer"}
