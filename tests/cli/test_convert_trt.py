"""`servegate convert trt`: what it prints, what it adds, and how it ends without a GPU."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from cli.commands import Done, servegate
from workbench.conversion.plans.kit_scene import DEVICE, doubling, put_tools, write_entry

from serve.core.flavours import VersionFlavours
from serve.workbench.conversion.plans import onsite

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


@pytest.mark.slow
def test_what_tensorrt_cannot_take_ends_it_before_anything_is_made(
    entry: Path, tmp_path: Path
) -> None:
    done = servegate("convert", "trt", entry, "--profile", "x=1x3:4x3:4x3", "--print", "trtexec")
    assert (done.returncode, "code: trt_profile" in done.stderr) == (1, True)
    assert "batches of up to 8" in done.stderr
    (entry / "1" / "model.onnx").write_bytes(doubling("StringConcat"))
    words = ("--print", "docker", "--image", IMAGE)
    done = servegate("convert", "trt", entry, *words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "code: trt_unsupported" in done.stderr and "'twice'" in done.stderr
    assert not (tmp_path / "twice-kit").exists()


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
