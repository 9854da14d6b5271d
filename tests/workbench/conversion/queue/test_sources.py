"""Which files of an upload are the source of a conversion."""

import pytest

from serve.core.errors import Invalid
from serve.core.versions import VersionFile
from serve.workbench.conversion.queue.sources import ConversionSource
from serve.workbench.conversion.request import ConversionRequest

SAVED = ("saved_model.pb", "variables/variables.index", "assets/words.txt", "fingerprint.pb")


def found(*paths: str, samples: str = "", labelled: str = "") -> ConversionSource:
    listed = [VersionFile(path, 1, "a" * 64) for path in paths]
    return ConversionSource.of(listed, ConversionRequest("", samples=samples, labelled=labelled))


@pytest.mark.parametrize("path", ["m.keras", "m.h5", "m.HDF5", "m.onnx", "a/b/m.onnx"])
def test_one_file_of_a_known_kind_is_the_source(path: str) -> None:
    assert found(path).path == path


def test_a_saved_model_is_its_folder() -> None:
    source = found(*(f"digits/{path}" for path in SAVED))
    assert source.path == "digits"
    assert {path for path, _ in source.files} == {f"digits/{path}" for path in SAVED}


def test_a_saved_model_without_a_folder_gets_one() -> None:
    source = found(*SAVED)
    assert source.path == "savedmodel"
    assert {path for path, _ in source.files} == {f"savedmodel/{path}" for path in SAVED}


def test_samples_are_no_part_of_the_source() -> None:
    source = found(*SAVED, "s.npz", "l.npz", samples="s.npz", labelled="l.npz")
    assert {"s.npz", "l.npz"} <= {path for path, _ in source.files}
    assert found("m.keras", "s.npz", samples="s.npz").path == "m.keras"


def test_a_word_list_beside_the_graph_is_part_of_it() -> None:
    assert found(*SAVED, "assets/saved_model.pb").path == "savedmodel"


@pytest.mark.parametrize(
    "paths",
    [
        ("model.pkl",),
        ("a.keras", "b.keras"),
        ("m.onnx", "m.onnx.data"),
        ("m.onnx", "samples.npz"),
        ("variables/variables.index",),
        ("a/saved_model.pb", "run.sh"),
        ("a/saved_model.pb", "b/saved_model.pb"),
    ],
)
def test_anything_else_is_refused_and_named(paths: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="exactly one model") as refused:
        found(*paths)
    assert min(paths) in refused.value.why


def test_samples_that_were_not_uploaded_are_refused() -> None:
    with pytest.raises(Invalid, match=r"no file 's\.npz'"):
        found("m.onnx", samples="s.npz")
    with pytest.raises(Invalid, match=r"no file '\.\./\.\./etc/passwd'"):
        found("m.onnx", labelled="../../etc/passwd")
