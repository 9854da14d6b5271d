"""What can be pushed: which files of which folder, and the sentences for what cannot."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from serve.cli.pieces import PushSource
from serve.cli.sources import open_source
from serve.core.errors import Invalid
from serve.tensors.signature import ModelSignature, ModelTensor

X = ModelTensor("x", "FP32", (-1, 4))
Y = ModelTensor("y", "FP32", (-1, 2))


def reads(**facts: Any) -> Any:
    """A reader of model files that finds one input and one output everywhere."""
    return lambda path: ModelSignature("onnx", (X,), (Y,), facts)


def opened(path: Path, version: int | None = None, **facts: Any) -> PushSource:
    return open_source(path, "m", read_model=reads(**facts), version=version)


def paths(source: PushSource) -> list[str]:
    return sorted(piece.path for piece in source.pieces)


def refused(path: Path, version: int | None = None, **facts: Any) -> Invalid:
    with pytest.raises(Invalid) as raised:
        opened(path, version, **facts)
    return raised.value


def folder(root: Path, *files: str) -> Path:
    """A folder with these files."""
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"of {name}")
    return root


# --- a model folder of Triton ------------------------------------------------------------------


def test_a_model_folder_is_taken_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    files = ["1/data/w.bin", "1/model.onnx", "config.pbtxt", "contract/contract.json", "labels.txt"]
    source = opened(folder(tmp_path / "m", *files))
    assert paths(source) == files
    assert (source.kind, source.name, source.notes) == ("triton", "m", ())


def test_of_several_versions_the_highest_is_taken_and_that_is_said(tmp_path: Path) -> None:
    source = opened(folder(tmp_path, "1/a", "2/a", "10/a", "config.pbtxt"))
    assert paths(source) == ["10/a", "config.pbtxt"]
    assert "1, 2" in source.notes[0]
    assert paths(opened(tmp_path, 1)) == ["1/a", "config.pbtxt"]


def test_dot_files_and_caches_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    source = opened(folder(tmp_path, "1/a", "1/__pycache__/a.pyc", ".git/config", "1/.DS_Store"))
    assert paths(source) == ["1/a"]
    assert source.notes == ("skipped: .git, 1/.DS_Store, 1/__pycache__",)


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    root = folder(tmp_path / "m", "1/model.onnx", "config.pbtxt")
    (root / "1/again.onnx").symlink_to("model.onnx")
    (root / "1/more").symlink_to("../extra", target_is_directory=True)
    folder(root, "extra/w")
    linked = ["1/again.onnx", "1/model.onnx", "1/more/w", "config.pbtxt", "extra/w"]
    assert paths(opened(root)) == linked
    (tmp_path / "itself").symlink_to("m")
    assert len(paths(opened(tmp_path / "itself"))) == 5


def test_links_that_go_round_in_circles_end(tmp_path: Path) -> None:
    root = folder(tmp_path, "1/model.onnx")
    (root / "1/loop").symlink_to("..", target_is_directory=True)
    source = opened(root)
    assert paths(source) == ["1/model.onnx"]
    assert "1/loop" in source.notes[0]


def test_links_that_lead_nowhere_or_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, "secret", "outside/file")
    root = folder(tmp_path / "m", "1/model.onnx")
    for target in ("../../secret", "/etc/passwd", "../../outside"):
        (root / "1/link").symlink_to(target)
        assert "the link '1/link' points outside the folder" in refused(root).what, target
        (root / "1/link").unlink()
    (root / "1/gone").symlink_to("nothing")
    assert "'1/gone' is broken" in refused(root).what


def test_only_an_ensemble_needs_no_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    assert "is empty" in refused(tmp_path).what
    step = 'ensemble_scheduling { step { model_name: "a" model_version: -1 } }'
    (tmp_path / "config.pbtxt").write_text(f'platform: "ensemble" {step}')
    assert paths(opened(tmp_path)) == ["1/placeholder", "config.pbtxt"]


@pytest.mark.parametrize(
    ("files", "opens", "version", "said"),
    [
        (["1/a", "2/a"], "", 3, "no version 3.*1, 2"),
        ([], "", None, "is empty"),
        (["a/1/model.onnx", "b/1/model.onnx"], "", None, "repository.*a, b"),
        (["net.onnx"], "", None, "Try: .*net.onnx"),
        ([], "nothing", None, "does not exist"),
        (["a.onnx"], "a.onnx", 1, "--source-version"),
        (["m.h5"], "m.h5", None, "has to be converted.*Try: pass --convert"),
        (["saved/saved_model.pb"], "saved", None, "has to be converted.*Try: pass --convert"),
        (["m.plan"], "m.plan", None, "Try: .*1/m.plan"),
        (["m.pt"], "m.pt", None, "Try: .*1/m.pt"),
        (["notes.txt"], "notes.txt", None, ""),
    ],
)
def test_what_cannot_be_pushed_is_refused_with_what_to_do(
    tmp_path: Path, files: list[str], opens: str, version: int | None, said: str
) -> None:
    error = refused(folder(tmp_path, *files) / opens, version)
    assert re.search(said, str(error)), error
    assert (error.code == "needs_conversion") == ("converted" in said)


def test_a_name_that_no_model_can_have_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not a valid model name"):
        open_source(tmp_path / "nothing", "a/b", read_model=reads())


# --- one ONNX file -------------------------------------------------------------------------------


def test_an_onnx_file_gets_a_configuration(tmp_path: Path) -> None:
    source = opened(folder(tmp_path, "net.onnx") / "net.onnx")
    assert paths(source) == ["1/model.onnx", "config.pbtxt"]
    config = source.find("config.pbtxt")
    assert config is not None and isinstance(config.origin, bytes)
    assert b'name: "x"' in config.origin
    assert (source.kind, source.name) == ("onnx", "net.onnx")


def test_the_data_that_a_model_keeps_outside_is_taken_along(tmp_path: Path) -> None:
    root = folder(tmp_path, "net.onnx", "w/0.bin", "w1.bin", "other.bin")
    source = opened(root / "net.onnx", external_data=["w/0.bin", "w1.bin", "w1.bin"])
    assert paths(source) == ["1/model.onnx", "1/w/0.bin", "1/w1.bin", "config.pbtxt"]


def test_data_that_is_not_beside_the_model_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, "secret")
    root = folder(tmp_path / "m", "net.onnx")
    (root / "link").symlink_to("../secret")
    for name in ("../secret", "/etc/passwd", "missing.bin", "link"):
        refused(root / "net.onnx", external_data=[name])


# --- MLflow --------------------------------------------------------------------------------------

ONNX = {"onnx": {"onnx_version": "1.19", "data": "model.onnx"}, "python_function": {"env": {}}}


def mlflow(root: Path, flavours: Mapping[str, Any], **more: Any) -> Path:
    """An MLflow model folder; JSON is YAML."""
    folder(root, "model.onnx")
    (root / "MLmodel").write_text(json.dumps({"flavors": flavours, **more}))
    return root


def test_the_onnx_flavour_of_mlflow_is_pushed_with_where_it_comes_from(tmp_path: Path) -> None:
    signature = {"inputs": '[{"name": "x"}]', "outputs": None}
    root = mlflow(
        tmp_path, ONNX, run_id="0af1", mlflow_version="3.4.0", model_uuid="7", signature=signature
    )
    source = opened(root)
    assert paths(source) == ["1/model.onnx", "config.pbtxt"]
    assert source.kind == "mlflow"
    assert source.tools == {"mlflow": "3.4.0"}
    assert source.tags == {
        "mlflow.run_id": "0af1",
        "mlflow.model_uuid": "7",
        "mlflow.inputs": '[{"name": "x"}]',
    }


@pytest.mark.parametrize("flavour", ["tensorflow", "keras", "sklearn", "pytorch", "an_own_one"])
def test_other_mlflow_flavours_are_refused_with_what_to_do(tmp_path: Path, flavour: str) -> None:
    error = refused(mlflow(tmp_path, {flavour: {}, "python_function": {}}))
    assert (error.code == "needs_conversion") == (flavour in ("tensorflow", "keras"))
    assert flavour in error.why + error.what and error.try_this


def test_what_is_no_mlmodel_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, "secret.onnx")
    root = mlflow(tmp_path / "m", {"onnx": {"data": "../secret.onnx"}})
    assert "outside its folder" in refused(root).what
    attack = "!!python/object/apply:os.system ['true']"
    for text in ("", "[]", "flavors: 3", "flavors: [", attack, "a: &a [*a]"):
        (root / "MLmodel").write_text(text)
        assert "MLmodel is not a valid" in refused(root).what, text
