"""Checking sources of every kind: what may be opened, and the fault of what may not."""

import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import onnx
import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.sources import (
    SourceKind,
    check_source,
    choose_signature,
    digest_of,
    size_of,
)
from serve.workbench.conversion.sources.messages import MOST_FIELDS

from ..model_files import copying, save, scaling
from .archives import archive, flipped, h5, keras, layer, members, model, tenths, weights
from .graphs import DEFAULT, meta_graph, node, saved, signature


def code(path: Path, most: int = 1 << 30) -> str:
    return refusal(ConversionFailed, check_source, path, most=most).code


def savedmodel(folder: Path) -> Path:
    return saved(folder, meta_graph([node("x", "Placeholder")], (), {DEFAULT: signature("x:0")}))


def test_each_kind_is_told(tmp_path: Path) -> None:
    assert check_source(savedmodel(tmp_path / "m")) is SourceKind.SAVEDMODEL
    assert check_source(keras(tmp_path / "m.keras")) is SourceKind.KERAS
    assert check_source(h5(tmp_path / "m.h5")) is SourceKind.H5
    assert check_source(save(copying(), tmp_path / "m.onnx")) is SourceKind.ONNX


def test_what_is_no_model_is_told_apart_from_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("x")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "saved_model.pbtxt").write_text("x")
    assert code(tmp_path / "gone") == "source_missing"
    assert code(tmp_path / "m.txt" / "m.keras") == "source_missing"
    assert code(tmp_path / "m.txt") == "source_unknown"
    assert code(tmp_path) == "source_unknown"
    assert "text form" in refusal(ConversionFailed, check_source, tmp_path / "text").why
    assert code(tmp_path / "a\0b.keras") == "source_unknown"


@pytest.mark.parametrize("suffix", [".keras", ".h5", ".onnx"])
def test_empty_and_random_files_are_corrupt(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    for content in (b"", np.random.default_rng(0).bytes(5000)):
        path.write_bytes(content)
        assert code(path) == "source_corrupt"


def test_pickles_are_refused_by_name_and_by_content(tmp_path: Path) -> None:
    for suffix in (".pkl", ".joblib", ".pt", ".pth", ".pickle"):
        (tmp_path / f"m{suffix}").write_bytes(b"x")
        assert code(tmp_path / f"m{suffix}") == "pickle_refused", suffix
    (tmp_path / "m.keras").write_bytes(b"\x80\x04\x95")
    assert code(tmp_path / "m.keras") == "pickle_refused"


def test_pipes_sockets_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.keras")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "m.h5"))
        (tmp_path / "m.onnx").symlink_to("/dev/zero")
        (tmp_path / "loop.keras").symlink_to(tmp_path / "loop.keras")
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "folder" / "saved_model.pb")
        for name in ("m.keras", "m.h5", "m.onnx", "loop.keras", "folder"):
            assert code(tmp_path / name) == "source_unknown"


def test_a_file_larger_than_may_be_read_is_refused(tmp_path: Path) -> None:
    for path in (keras(tmp_path / "m.keras"), h5(tmp_path / "m.h5"), savedmodel(tmp_path / "m")):
        assert code(path, most=10) == "source_too_large"


# --- folders -------------------------------------------------------------------------------------


def test_what_is_no_file_in_a_folder_is_refused(tmp_path: Path) -> None:
    folder = savedmodel(tmp_path / "m")
    (folder / "variables").symlink_to(folder)  # it leads into itself
    assert code(folder) == "archive_unsafe"
    (folder / "variables").unlink()
    os.mkfifo(folder / "variables")
    assert code(folder) == "archive_unsafe"
    (folder / "variables").unlink()
    (folder / "assets").symlink_to("gone")  # it leads nowhere
    assert code(folder) == "source_corrupt"


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(tmp_path: Path) -> None:
    folder = savedmodel(tmp_path / "m")
    (folder / "assets").mkdir()
    (folder / "assets" / "a").write_bytes(b"a")
    (folder / "assets" / "b").symlink_to("a")
    check_source(folder)
    (folder / "assets" / "c").symlink_to("/etc/hostname")
    assert code(folder) == "archive_unsafe"


def test_folders_too_deep_or_too_full_are_refused(tmp_path: Path) -> None:
    folder = savedmodel(tmp_path / "m")
    (folder / "/".join("d" * 20)).mkdir(parents=True)
    assert code(folder) == "archive_unsafe"
    full = savedmodel(tmp_path / "n")
    for n in range(10_001):
        (full / str(n)).touch()
    assert code(full) == "source_too_large"


# --- HDF5 ----------------------------------------------------------------------------------------


def test_a_lambda_in_either_container_is_refused(tmp_path: Path) -> None:
    page = model(layer("TimeDistributed", "t", layer=layer("Lambda", "inner")))
    for path in (keras(tmp_path / "m.keras", page), h5(tmp_path / "m.h5", page)):
        fault = refusal(ConversionFailed, check_source, path)
        assert (fault.code, fault.operator, fault.node) == ("lambda_layer", "Lambda", "inner")


@pytest.mark.slow
def test_an_hdf5_cut_off_anywhere_is_corrupt(tmp_path: Path) -> None:
    for path in tenths(h5(tmp_path / "m.h5")):
        assert code(path) == "source_corrupt"


def test_weights_without_a_model_are_told_so(tmp_path: Path) -> None:
    (tmp_path / "m.h5").write_bytes(weights())
    assert "no model" in refusal(ConversionFailed, check_source, tmp_path / "m.h5").why


def link_out(file: h5py.File) -> None:
    file["model_weights/evil"] = h5py.ExternalLink("/etc/passwd", "/x")


def store_outside(file: h5py.File) -> None:
    file.create_dataset("model_weights/evil", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def look_outside(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/else/where.h5", "x", (4,))
    file.create_virtual_dataset("model_weights/evil", layout)


def promise_much(file: h5py.File) -> None:
    file.create_dataset("model_weights/bomb", (1 << 20, 1 << 20), "f4", chunks=(1024, 1024))


def pack_much(file: h5py.File) -> None:
    zeros = np.zeros(20 << 20, np.float32)
    file.create_dataset("model_weights/bomb", data=zeros, compression="gzip")


def pickle_in_an_attribute(file: h5py.File) -> None:
    file.attrs["extra"] = np.void(b"\x80\x04\x95" + bytes(50))


def pickle_in_an_array(file: h5py.File) -> None:
    file["model_weights/p"] = np.frombuffer(b"\x80\x04\x95" + bytes(200), np.uint8)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        *((each, "archive_unsafe") for each in (link_out, store_outside, look_outside)),
        *((each, "archive_unsafe") for each in (promise_much, pack_much)),
        *((each, "pickle_refused") for each in (pickle_in_an_attribute, pickle_in_an_array)),
    ],
)
def test_hdf5_that_reaches_out_or_unfolds_is_refused(
    change: Callable[[h5py.File], None], fault: str, tmp_path: Path
) -> None:
    path = h5(tmp_path / "m.h5")
    with h5py.File(path, "a") as file:
        change(file)
    assert code(path) == fault


def test_links_of_hdf5_in_a_circle_or_to_nowhere_do_no_harm(tmp_path: Path) -> None:
    path = h5(tmp_path / "m.h5")
    with h5py.File(path, "a") as file:
        file["model_weights/loop"] = file["model_weights"]
        file["model_weights/soft"] = h5py.SoftLink("/nowhere")
    check_source(path)


def test_the_weights_of_an_archive_are_looked_at_as_well(tmp_path: Path) -> None:
    inner = h5(tmp_path / "inner.h5")
    with h5py.File(inner, "a") as file:
        link_out(file)
    content = members() | {"model.weights.h5": inner.read_bytes()}
    for packed in (False, True):
        assert code(archive(tmp_path / "m.keras", content, packed=packed)) == "archive_unsafe"


@pytest.mark.slow
def test_any_byte_of_hdf5_may_be_wrong_without_another_error(tmp_path: Path) -> None:
    for path in flipped(h5(tmp_path / "m.h5"), seed=2, times=6, bytes_each=40):
        try:
            check_source(path)
        except ConversionFailed:
            pass


# --- ONNX ----------------------------------------------------------------------------------------


def test_weights_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    for location in ("/etc/passwd", "../secret", "a/../../b"):
        assert code(save(scaling(location), tmp_path / "m.onnx")) == "archive_unsafe", location


def test_weights_beside_the_file_are_fine_when_they_are_there(tmp_path: Path) -> None:
    path = save(scaling("w.bin"), tmp_path / "m.onnx")
    assert code(path) == "source_corrupt"
    (tmp_path / "w.bin").write_bytes(bytes(12))
    check_source(path)
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("/etc/hostname")
    assert code(path) == "archive_unsafe"


def test_weights_of_graphs_inside_of_nodes_are_looked_at(tmp_path: Path) -> None:
    inner = scaling("/etc/passwd").graph
    outer = copying()
    outer.graph.node.append(
        onnx.helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)
    )
    assert code(save(outer, tmp_path / "m.onnx")) == "archive_unsafe"


def test_an_onnx_file_cut_off_is_corrupt_or_has_no_graph(tmp_path: Path) -> None:
    for path in tenths(save(copying(), tmp_path / "m.onnx")):
        assert code(path) == "source_corrupt"
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08")  # only the version of the format
    assert code(tmp_path / "m.onnx") == "source_corrupt"


# --- bounds, digests, signatures ------------------------------------------------------------------


@pytest.mark.slow
def test_a_graph_of_countless_parts_is_refused_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x01" * (MOST_FIELDS + 1))
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert code(tmp_path / "m.onnx") == "source_too_large"
    assert time.monotonic() - begun < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


def test_a_digest_is_that_of_the_list_of_files(tmp_path: Path) -> None:
    folder = savedmodel(tmp_path / "m")
    (folder / "assets").mkdir()
    (folder / "assets" / "a").write_bytes(b"a")
    first = digest_of(folder)
    assert first == digest_of(folder)
    assert size_of(folder) == (folder / "saved_model.pb").stat().st_size + 1
    (folder / "assets" / "a").rename(folder / "assets" / "b")
    assert digest_of(folder) != first


def test_a_signature_is_chosen_only_where_there_is_no_choice() -> None:
    assert choose_signature(["only"], "") == "only"
    assert choose_signature(["a", "b"], "b") == "b"
    assert choose_signature(["serve", "serving_default"], "") == "serving_default"
    assert choose_signature({"serve": 1, "serving_default": 1}, "") == "serving_default"
    for names, wanted, fault in (
        ([], "", "no_signature"),
        ([], "a", "no_signature"),
        (["a"], "b", "unknown_signature"),
        (["a", "serving_default"], "", "ambiguous_signature"),
        ({"serve": 1, "serving_default": 2}, "", "ambiguous_signature"),
    ):
        assert refusal(ConversionFailed, choose_signature, names, wanted).code == fault
