"""Which files of an upload are the source of a conversion."""

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.versions import VersionFile
from serve.workbench.conversion.queue.sources import ConversionSource
from serve.workbench.conversion.request import ConversionRequest

SAVED = ("saved_model.pb", "variables/variables.index", "assets/words.txt", "fingerprint.pb")


def found(*paths: str, samples: str = "", labelled: str = "") -> ConversionSource:
    listed = [VersionFile(path, 1, "a" * 64) for path in paths]
    return ConversionSource.of(listed, ConversionRequest("", samples=samples, labelled=labelled))


def test_one_file_of_a_known_kind_is_the_source() -> None:
    for path in ("m.keras", "m.h5", "m.HDF5", "m.onnx", "a/b/m.onnx"):
        assert found(path).path == path


def test_a_saved_model_is_its_folder_and_gets_one_where_it_has_none() -> None:
    for source, folder in (
        (found(*(f"digits/{path}" for path in SAVED)), "digits"),
        (found(*SAVED), "savedmodel"),
    ):
        assert source.path == folder
        assert {path for path, _ in source.files} == {f"{folder}/{path}" for path in SAVED}
    assert found(*SAVED, "assets/saved_model.pb").path == "savedmodel"  # a word list of that name


def test_samples_are_no_part_of_the_source() -> None:
    source = found(*SAVED, "s.npz", "l.npz", samples="s.npz", labelled="l.npz")
    assert {"s.npz", "l.npz"} <= {path for path, _ in source.files}
    assert found("m.keras", "s.npz", samples="s.npz").path == "m.keras"


def test_anything_else_is_refused_and_named() -> None:
    for paths in (
        ("model.pkl",),
        ("a.keras", "b.keras"),
        ("m.onnx", "m.onnx.data"),
        ("m.onnx", "samples.npz"),
        ("variables/variables.index",),
        ("a/saved_model.pb", "run.sh"),
        ("a/saved_model.pb", "b/saved_model.pb"),
    ):
        refused = refusal(Invalid, found, *paths)
        assert "exactly one model" in str(refused) and min(paths) in refused.why


def test_samples_that_were_not_uploaded_are_refused() -> None:
    for name in ("s.npz", "../../etc/passwd"):
        for role in ("samples", "labelled"):
            assert f"no file '{name}'" in str(refusal(Invalid, found, "m.onnx", **{role: name}))
