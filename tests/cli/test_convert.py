"""`servegate convert` as people run it: streams, exit codes, and what is left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.commands import Done, servegate
from conversion.model_files import classifier, save, times, value
from onnx import TensorProto, helper, numpy_helper

from serve.cli.convert_options import limits_of, make_request, share_of, tolerances_of
from serve.cli.converting import blocks
from serve.conversion.report import OutputError
from serve.core.errors import Invalid

SERVEGATE = Path(sys.executable).parent / "servegate"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return times(tmp_path / "m.onnx", 2.0)


def convert(*words: object) -> Done:
    return servegate("convert", *words)


def events(done: Done) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_conversion_shows_the_gate_and_writes_an_entry(source: Path, tmp_path: Path) -> None:
    done = convert("onnx", source, "--name", "twice", "--out", tmp_path / "repo")
    assert done.returncode == 0, done.stderr
    assert "numbers\tpassed" in done.stdout and "\ny\t0\t" in done.stdout
    assert "simplifying and checking" in done.stderr
    assert (tmp_path / "repo/twice/1/model.onnx").is_file()
    assert (tmp_path / "repo/twice/conversion.html").is_file()


def test_programs_get_events_and_a_result_last(source: Path, tmp_path: Path) -> None:
    done = convert("onnx", source, "--name", "twice", "--out", tmp_path / "repo", "--json")
    told = events(done)
    assert [told[0]["type"], told[-2]["type"], told[-1]["type"]] == ["stage", "report", "result"]
    assert told[-1]["ok"] and told[-1]["entry"] == str(tmp_path / "repo/twice")


def test_a_model_that_is_another_is_refused_with_status_7(source: Path, tmp_path: Path) -> None:
    done = convert("verify", source, times(tmp_path / "other.onnx", 2.2))
    assert done.returncode == 7
    assert "refused: numbers_differ" in done.stdout
    assert "code: numbers_differ" in done.stderr


def product(path: Path, kind: int) -> Path:
    """An ONNX file of one product with weights, computed in FP32 or in FP16."""
    weights = np.random.default_rng(5).standard_normal((64, 4))
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["as"], to=kind),
            helper.make_node("MatMul", ["as", "w"], ["product"]),
            helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
        ],
        "product",
        [value("x", TensorProto.FLOAT, ["batch", 64])],
        [value("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weights.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return save(model, path)


def test_a_file_that_computes_in_less_than_asked_is_told_as_that(tmp_path: Path) -> None:
    plain = product(tmp_path / "plain.onnx", TensorProto.FLOAT)
    half = product(tmp_path / "half.onnx", TensorProto.FLOAT16)
    done = convert("verify", plain, half)
    assert done.returncode == 7
    assert "try: --precision fp16, in which that file computes" in done.stderr
    assert convert("verify", plain, half, "--precision", "fp16").returncode == 0


def test_what_a_report_warns_of_is_told(tmp_path: Path) -> None:
    plain = product(tmp_path / "plain.onnx", TensorProto.FLOAT)
    where = ("--name", "m", "--out", tmp_path / "repo")
    done = convert("onnx", plain, *where, "--precision", "int8", "--accept-unverified")
    assert done.returncode == 0, done.stderr
    assert "warning: not verified: there are no samples and no labelled rows" in done.stderr
    page = (tmp_path / "repo/m/conversion.html").read_text()
    assert "<strong>Not verified.</strong>" in page
    said = servegate("model", "lint", tmp_path / "repo/m")
    assert "conversion-unverified" in said.stdout


def test_int8_that_nothing_would_verify_is_refused_before_any_work(tmp_path: Path) -> None:
    plain = product(tmp_path / "plain.onnx", TensorProto.FLOAT)
    np.savez(tmp_path / "few.npz", x=np.ones((20, 64), np.float32))
    where = ("--name", "m", "--out", tmp_path / "repo", "--precision", "int8")
    done = convert("onnx", plain, *where, "--samples", tmp_path / "few.npz")
    assert done.returncode == 1
    assert "code: samples_too_few" in done.stderr and "--accept-unverified" in done.stderr
    assert "there are 20 samples, 100 are needed" in done.stderr
    assert "simplifying" not in done.stderr and not (tmp_path / "repo").exists()


def test_an_onnx_file_that_is_wrong_itself_is_not_called_a_converted_graph(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node(
                "StringNormalizer",
                ["x"],
                ["y"],
                name="up",
                case_change_action="UPPER",
                locale="xx_XX",
            )
        ],
        "wrong",
        [value("x", TensorProto.STRING, ["batch"])],
        [value("y", TensorProto.STRING, ["batch"])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    where = ("--name", "m", "--out", tmp_path / "repo")
    done = convert("onnx", save(made, tmp_path / "m.onnx"), *where)
    assert done.returncode == 1
    assert "error: the ONNX file is no valid model" in done.stderr
    assert "xx_XX" in done.stderr and "code: source_invalid" in done.stderr
    assert "converted graph" not in done.stderr and "named above" not in done.stderr


def test_maps_of_probabilities_are_removed_by_a_conversion_and_named_by_lint(
    tmp_path: Path,
) -> None:
    source = classifier(tmp_path / "sk.onnx")
    said = servegate("model", "lint", source)
    assert said.returncode == 1
    assert "skl2onnx.to_onnx(model, X[:1], options={'zipmap': False})" in said.stdout
    done = convert("onnx", source, "--name", "sk", "--out", tmp_path / "repo")
    assert done.returncode == 0, done.stderr
    assert "warning: output 'output_probability' was a list of maps (ZipMap)" in done.stderr
    assert "the classes 3, 5, 8" in done.stderr
    config = (tmp_path / "repo/sk/config.pbtxt").read_text()
    assert "output_probability" in config and "dims: 3" in config
    assert servegate("model", "lint", tmp_path / "repo/sk").returncode == 0


def test_a_conversion_names_its_report_and_what_comes_next(source: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    said = convert("onnx", source, "--name", "twice", "--out", repo).stderr
    assert f"report: {repo / 'twice/conversion.html'}" in said
    assert f"servegate model push {repo / 'twice'} twice" in said


def test_the_same_model_is_verified(source: Path) -> None:
    done = convert("verify", source, source, "--json")
    assert done.returncode == 0, done.stderr
    assert events(done)[-1]["passed"] is True


def test_what_cannot_be_converted_ends_with_status_1_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    done = convert("onnx", tmp_path / "m.onnx", "--name", "m", "--out", tmp_path / "repo")
    assert done.returncode == 1
    assert "code: source_corrupt" in done.stderr
    assert not (tmp_path / "repo").exists()


def test_too_little_memory_says_how_much_is_too_little(source: Path, tmp_path: Path) -> None:
    where = ("--name", "m", "--out", tmp_path / "repo")
    done = convert("onnx", source, *where, "--memory", "40MB")
    assert done.returncode == 1
    assert "code: out_of_memory" in done.stderr and "the limit is 40 MB" in done.stderr
    assert "--memory with more" in done.stderr
    assert not (tmp_path / "repo").exists()


def test_an_entry_that_is_there_is_refused_before_any_work(source: Path, tmp_path: Path) -> None:
    (tmp_path / "repo/m/1").mkdir(parents=True)
    done = convert("onnx", source, "--name", "m", "--out", tmp_path / "repo")
    assert done.returncode == 5
    assert "--as-version 2" in done.stderr and "reading the source" not in done.stderr


def test_ctrl_c_ends_the_child_and_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    with subprocess.Popen(
        [SERVEGATE, "convert", "onnx", source, "--name", "m", "--out", tmp_path / "repo"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    ) as process:
        assert process.stderr is not None
        assert "reading the source" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "nothing is left behind" in said
    assert list(scratch.iterdir()) == [] and not (tmp_path / "repo").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--precision", "fp8"), "fp32, fp16, int8"),
        (("--max-drop", "a lot"), "0.5pp"),
        (("--atol", "y=small"), "--atol OUTPUT=1e-4"),
        (("--rtol", "-1"), "--rtol 1e-4"),
        (("--memory", "plenty"), "--memory 4GB"),
        (("--timeout", "0"), "--timeout 30m"),
        (("--samples", "gone.npz"), "there is no file gone.npz"),
        (("--name", "a/b"), "cannot be the name of a model"),
    ],
)
def test_options_that_make_no_sense_are_told_with_status_2(
    source: Path, tmp_path: Path, words: tuple[str, str], why: str
) -> None:
    done = convert("onnx", source, "--name", "m", "--out", tmp_path / "repo", *words)
    assert done.returncode == 2
    assert why in done.stderr


# --- how options are read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "share"), [("0.5pp", 0.005), ("2 %", 0.02), ("0.01", 0.01), ("0", 0.0)]
)
def test_a_drop_is_given_in_points_or_as_a_share(text: str, share: float) -> None:
    assert share_of(text) == pytest.approx(share)


def test_a_drop_of_more_than_everything_is_refused() -> None:
    with pytest.raises(Invalid):
        share_of("101pp")


def test_tolerances_are_general_or_of_one_output() -> None:
    found = tolerances_of(["1e-3", "y=0.1"], ["a=b=0.2"])
    assert (found[""].atol, found["y"].atol, found["a=b"].rtol) == (1e-3, 0.1, 0.2)
    assert found["y"].rtol is None


@pytest.mark.parametrize(
    ("memory", "size"), [("4GB", 4_000_000_000), ("1.5 GiB", 1_610_612_736), ("512mb", 512_000_000)]
)
def test_memory_is_given_with_a_unit(memory: str, size: int) -> None:
    assert limits_of(memory, "2h").memory == size


def test_times_are_given_with_a_unit() -> None:
    assert [limits_of("1GB", text).seconds for text in ("90", "30m", "2h")] == [90, 1800, 7200]


def test_the_defaults_of_a_request_are_those_of_the_contract() -> None:
    from serve.conversion.request import Request

    assert make_request("x") == Request("x")


def test_a_histogram_in_one_line_reaches_from_the_smallest_to_the_largest_error() -> None:
    def error(*counts: int) -> OutputError:
        edges = (-9, -8, -7)
        return OutputError("y", 1, 1.0, 0, 0, 0, 0, edges=edges, histogram=counts)

    assert blocks(error(0, 80, 10, 0)) == "1e-9 █▁ 1e-7"
    assert blocks(error(5, 0, 0, 5)) == "0 █  █ more"
    assert blocks(error(0, 0, 0, 0)) == ""
