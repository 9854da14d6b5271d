"""`servegate convert` as people run it: streams, exit codes, and what is left behind."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from cli.commands import SERVEGATE, Done, servegate
from onnx import TensorProto, helper, numpy_helper
from workbench.conversion.model_files import classifier, save, times, value
from workbench.conversion.plans.kit_scene import DEVICE, doubling, put_tools, write_entry

from serve.core.flavours import VersionFlavours
from serve.workbench.conversion.cli.arguments import (
    limits_of,
    make_request,
    share_of,
    tolerances_of,
)
from serve.workbench.conversion.cli.conversion import blocks
from serve.workbench.conversion.plans import onsite
from serve.workbench.conversion.report import OutputError
from serve.workbench.conversion.request import ConversionRequest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return times(tmp_path / "m.onnx", 2.0)


def convert(*words: object) -> Done:
    return servegate("convert", *words)


def test_a_conversion_shows_the_gate_and_writes_an_entry(source: Path, tmp_path: Path) -> None:
    done = convert("onnx", source, "--name", "twice", "--out", tmp_path / "repo")
    assert done.returncode == 0, done.stderr
    assert "numbers\tpassed" in done.stdout and "\ny\t0\t" in done.stdout
    assert "simplifying and checking" in done.stderr
    assert (tmp_path / "repo/twice/1/model.onnx").is_file()
    report = tmp_path / "repo/twice/conversion.html"
    assert report.is_file() and f"report: {report}" in done.stderr
    assert f"servegate model push {report.parent} twice" in done.stderr
    again = convert("onnx", source, "--name", "twice", "--out", tmp_path / "repo")
    assert again.returncode == 5
    assert "--as-version 2" in again.stderr and "reading the source" not in again.stderr
    told = convert("onnx", source, "--name", "two", "--out", tmp_path / "repo", "--json").events
    assert [told[0]["type"], told[-2]["type"], told[-1]["type"]] == ["stage", "report", "result"]
    assert told[-1]["ok"] and told[-1]["entry"] == str(tmp_path / "repo/two")


@pytest.mark.slow
def test_a_model_is_verified_or_refused_with_status_7(source: Path, tmp_path: Path) -> None:
    same = convert("verify", source, source, "--json")
    assert same.returncode == 0, same.stderr
    assert same.events[-1]["passed"] is True
    other = convert("verify", source, times(tmp_path / "other.onnx", 2.2))
    assert other.returncode == 7
    assert "refused: numbers_differ" in other.stdout
    assert "code: numbers_differ" in other.stderr


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


@pytest.mark.slow
def test_a_file_that_computes_in_less_than_asked_is_told_as_that(tmp_path: Path) -> None:
    plain = product(tmp_path / "plain.onnx", TensorProto.FLOAT)
    half = product(tmp_path / "half.onnx", TensorProto.FLOAT16)
    done = convert("verify", plain, half)
    assert done.returncode == 7
    assert "try: --precision fp16, because the file computes in fp16" in done.stderr
    assert convert("verify", plain, half, "--precision", "fp16").returncode == 0


@pytest.mark.slow
def test_what_a_report_warns_of_is_told(tmp_path: Path) -> None:
    maps = classifier(tmp_path / "sk.onnx")
    done = convert("onnx", maps, "--name", "sk", "--out", tmp_path / "repo")
    assert done.returncode == 0, done.stderr
    assert "warning: output 'output_probability' was a list of maps (ZipMap)" in done.stderr
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
    assert "there are 20 samples (at least 100 needed)" in done.stderr
    assert "simplifying" not in done.stderr and not (tmp_path / "repo").exists()


def test_what_cannot_be_converted_has_status_1_and_leaves_nothing(
    source: Path, tmp_path: Path
) -> None:
    where = ("--name", "m", "--out", tmp_path / "repo")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    done = convert("onnx", tmp_path / "broken.onnx", *where)
    assert done.returncode == 1 and "code: source_corrupt" in done.stderr
    done = convert("onnx", source, *where, "--memory", "40MB")
    assert done.returncode == 1
    assert "code: out_of_memory" in done.stderr and "the limit is 40 MB" in done.stderr
    assert "use a larger --memory" in done.stderr
    assert not (tmp_path / "repo").exists()


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
    assert "nothing was written" in said
    assert list(scratch.iterdir()) == [] and not (tmp_path / "repo").exists()


def test_options_that_make_no_sense_are_told_with_status_2(source: Path, tmp_path: Path) -> None:
    for name, text, why in (
        ("--precision", "fp8", "fp32, fp16, int8"),
        ("--max-drop", "a lot", "0.5pp"),
        ("--max-drop", "101pp", ""),
        ("--atol", "y=small", "--atol OUTPUT=1e-4"),
        ("--rtol", "-1", "--rtol 1e-4"),
        ("--memory", "plenty", "--memory 4GB"),
        ("--timeout", "0", "--timeout 30m"),
        ("--samples", "gone.npz", "the file 'gone.npz' does not exist"),
        ("--name", "a/b", "is not a valid model name"),
    ):
        where = ("--name", "m", "--out", tmp_path / "repo")
        done = convert("onnx", source, *where, name, text)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def test_options_are_read_with_their_units() -> None:
    assert make_request("x") == ConversionRequest("x")
    drops = [share_of(text) for text in ("0.5pp", "2 %", "0.01", "0")]
    assert drops == pytest.approx([0.005, 0.02, 0.01, 0.0])
    sizes = [limits_of(text, "2h").memory for text in ("4GB", "1.5 GiB", "512mb")]
    assert sizes == [4_000_000_000, 1_610_612_736, 512_000_000]
    assert [limits_of("1GB", text).seconds for text in ("90", "30m", "2h")] == [90, 1800, 7200]
    found = tolerances_of(["1e-3", "y=0.1"], ["a=b=0.2"])
    assert (found[""].atol, found["y"].atol, found["a=b"].rtol) == (1e-3, 0.1, 0.2)
    assert found["y"].rtol is None


def test_a_histogram_in_one_line_reaches_from_the_smallest_to_the_largest_error() -> None:
    for counts, drawn in (
        ((0, 80, 10, 0), "1e-9 █▁ 1e-7"),
        ((5, 0, 0, 5), "0 █  █ more"),
        ((0, 0, 0, 0), ""),
    ):
        error = OutputError("y", 1, 1.0, 0, 0, 0, 0, edges=(-9, -8, -7), histogram=counts)
        assert blocks(error) == drawn


# --- plans for TensorRT, without a GPU -----------------------------------------------------------


IMAGE = "nvcr.io/nvidia/tritonserver:26.07-py3"


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_entry(tmp_path / "models" / "twice")


def flavours(entry: Path) -> list[str]:
    found = entry / "flavours.json"
    return [each.name for each in VersionFlavours.parse(found.read_text()).preferred]


@pytest.mark.slow
def test_without_tensorrt_it_says_what_to_do_where_the_gpu_is(entry: Path, tmp_path: Path) -> None:
    done = servegate("convert", "trt", entry, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "TensorRT is not installed" in done.stderr
    assert "--print docker" in done.stderr
    assert "code: trt_missing" in done.stderr
    assert not (entry / "flavours.json").exists()
    assert not (tmp_path / "twice-kit").exists()
    done = servegate("convert", "trt", entry, "--image", IMAGE, folder=tmp_path)
    assert done.returncode == 1
    assert "try: docker run --rm --gpus all" in done.stderr
    assert (tmp_path / "twice-kit" / "onsite.py").is_file()


@pytest.mark.slow
def test_one_kit_is_printed_as_a_line_for_a_shell_and_as_a_job_for_the_gpu_that_will_serve(
    entry: Path, tmp_path: Path
) -> None:
    def shown(*words: str) -> Done:
        flags = ("--image", IMAGE, "--kit", "my kit")
        return servegate("convert", "trt", entry, "--print", *words, *flags, folder=tmp_path)

    done = shown("docker")
    assert done.returncode == 0
    line = shlex.split(done.stdout)
    assert line[:3] == ["docker", "run", "--rm"]
    assert f"type=bind,source={tmp_path / 'my kit'},target=/kit" in line
    assert "--built my kit" in done.stderr

    job = yaml.safe_load(shown("job", "--claim", "kits", "--gpu-product", "NVIDIA-L4").stdout)
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "plan-twice")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "kits"

    (tmp_path / "my kit" / "plan").write_text("what was built meanwhile")
    done = shown("job", "--tf32")
    assert done.returncode == 2
    assert (
        "contains another build kit" in done.stderr and "--kit with another folder" in done.stderr
    )
    assert (tmp_path / "my kit" / "plan").is_file()


@pytest.mark.slow
def test_the_words_of_trtexec_come_from_profile_and_options(entry: Path) -> None:
    words = (
        "--print",
        "trtexec",
        "--profile",
        "x=1x3:4x3:16x3",
        "--hardware-compatible",
        "ampere+",
    )
    done = servegate("convert", "trt", entry, *words, "--version-compatible", "--workspace", "512")
    line = shlex.split(done.stdout)
    assert line[0] == "trtexec"
    assert {
        "--optShapes=x:4x3",
        "--maxShapes=x:16x3",
        "--versionCompatible",
        "--hardwareCompatibilityLevel=ampere+",
        "--memPoolSize=workspace:512M",
    } <= set(line)


@pytest.mark.parametrize("factor", [2.0, 2.01], ids=["a good plan", "a plan of wrong answers"])
def test_a_kit_that_was_built_becomes_a_flavour_if_the_gate_lets_it(
    entry: Path, tmp_path: Path, factor: float
) -> None:
    kit = tmp_path / "twice-kit"
    servegate("convert", "trt", entry, "--print", "docker", "--image", IMAGE, folder=tmp_path)
    put_tools(kit, factor=factor)
    onsite.run(kit, lambda: DEVICE)
    done = servegate("convert", "trt", entry, "--built", kit, "--json")
    last = json.loads(done.stdout.splitlines()[-1])
    if factor == 2.0:
        assert (done.returncode, last["type"]) == (0, "result")
        assert last["flavours"] == flavours(entry) == ["plan-sm90"]
        assert (entry / "1" / "model.plan-sm90.plan").is_file()
    else:
        assert (done.returncode, last["code"]) == (7, "numbers_differ")
        assert not (entry / "flavours.json").exists()
        assert [each.name for each in (entry / "1").iterdir()] == ["model.onnx"]


def test_words_that_make_no_sense_are_a_mistake_of_use(entry: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    bare = write_entry(tmp_path / "bare" / "twice", cases=())
    for which, words, said in (
        (entry, "--print docker", "--image"),
        (entry, "--name twice", "--out"),
        (entry, "--hardware-compatible all", "ampere+"),
        (entry, "--flavour tf-trt", "onnx+trt"),
        (tmp_path / "empty", "", "--name NAME --out DIR"),
        (bare, f"--image {IMAGE}", "has no golden cases"),
    ):
        done = servegate("convert", "trt", which, *words.split(), folder=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), words
    assert not (tmp_path / "twice-kit").exists()


@pytest.mark.slow
def test_an_onnx_file_becomes_an_entry_first(tmp_path: Path) -> None:
    (tmp_path / "file.onnx").write_bytes(doubling())
    words = ("--name", "twice", "--out", "models", "--flavour", "onnx+trt", "--json")
    done = servegate("convert", "trt", "file.onnx", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    entry = tmp_path / "models" / "twice"
    assert flavours(entry) == ["onnx+trt"]
    assert (entry / "contract" / "contract.json").is_file()
