"""A model's folder as lint sees it: one version's files, the configuration, the model file."""

import asyncio
from pathlib import Path

import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.model_files.subjects import others_beside, subject_of
from serve.triton.config import parse
from serve.triton.lint import LintSubject, lint

from .model_files import copying, plan, save, scaling
from .sources.graphs import DEFAULT, meta_graph, saved, signature_def, tensor_info

REPOSITORY = Path(__file__).parents[3] / "model_repo"
CONFIG = """backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }"""


def found(folder: Path, version: int | None = None) -> LintSubject:
    return asyncio.run(subject_of(folder, version))


@pytest.mark.parametrize("version", [1, None])
def test_the_example_has_no_findings(version: int | None) -> None:
    subject = found(REPOSITORY / "digits", version)
    assert subject.name == "digits"
    assert subject.version_files == {"model.onnx"}
    assert subject.model_files == {"labels.txt"}
    assert lint(subject) == ()


def test_the_newest_version_is_looked_at_unless_it_is_said(tmp_path: Path) -> None:
    for number in (1, 9, 10):
        (tmp_path / str(number)).mkdir()
        save(copying(), tmp_path / str(number) / "model.onnx")
    (tmp_path / "1" / "more.txt").touch()
    assert found(tmp_path).files[0].path == "10/model.onnx"
    assert "more.txt" in found(tmp_path, 1).version_files


def test_an_onnx_file_in_a_folder_of_that_name_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "1" / "model.onnx"
    folder.mkdir(parents=True)
    save(scaling("weights.bin"), folder / "model.onnx")
    assert {each.rule for each in lint(found(tmp_path))} == {"external-data-missing"}
    (folder / "weights.bin").write_bytes(bytes(12))
    assert lint(found(tmp_path)) == ()


def test_plans_and_saved_models_are_read_as_well(tmp_path: Path) -> None:
    for name in ("plan", "saved"):
        (tmp_path / name / "1").mkdir(parents=True)
    plan(tmp_path / "plan" / "1" / "model.plan")
    info = tensor_info(1, [-1, 3])
    signatures = {DEFAULT: signature_def({"x": info}, {"y": info})}
    saved(tmp_path / "saved" / "1" / "model.savedmodel", meta_graph((), (), signatures))
    planned, tensorflow = found(tmp_path / "plan"), found(tmp_path / "saved")
    assert planned.signature and planned.signature.format == "plan"
    assert tensorflow.signature and tensorflow.signature.format == "savedmodel"
    assert {each.rule for each in lint(tensorflow)} == {"tensorflow-ended"}


def test_a_broken_file_and_a_broken_configuration_are_invalid(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(b"hello")
    assert "not an ONNX model" in str(refusal(Invalid, found, tmp_path))
    (tmp_path / "config.pbtxt").write_text("nonsense: 1")
    assert "config.pbtxt" in str(refusal(Invalid, found, tmp_path))


def test_the_models_beside_are_those_that_the_steps_name_and_their_steps(tmp_path: Path) -> None:
    def steps(*names: str) -> str:
        return "".join(
            f'ensemble_scheduling {{ step {{ model_name: "{name}" }} }}' for name in names
        )

    for name, text in (("inner", steps("leaf")), ("leaf", CONFIG), ("alone", CONFIG)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(text)
    (tmp_path / "bare").mkdir()
    outer = parse(
        'ensemble_scheduling { step { model_name: "inner" } step { model_name: "bare" } '
        'step { model_name: "absent" } step { model_name: "../leaf" } }'
    )
    others = others_beside(tmp_path / "outer", outer)
    assert set(others) == {"inner", "leaf", "bare"}
    assert others["leaf"] == parse(CONFIG)
