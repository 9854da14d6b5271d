"""`servegate convert trt`: what it prints, what it adds, and how it ends without a GPU."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from cli.commands import servegate
from conversion.plans.kit_scene import DEVICE, doubling, put_tools, write_entry

from serve.conversion.plans import onsite
from serve.core.flavours import Flavours

IMAGE = "nvcr.io/nvidia/tritonserver:26.07-py3"


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_entry(tmp_path / "models" / "twice")


def flavours(entry: Path) -> list[str]:
    found = entry / "flavours.json"
    return [each.name for each in Flavours.parse(found.read_text()).preferred]


def test_without_tensorrt_it_says_what_to_do_where_the_gpu_is(entry: Path, tmp_path: Path) -> None:
    done = servegate("convert", "trt", entry, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "TensorRT is not installed here" in done.stderr
    assert "--print docker" in done.stderr
    assert "code: trt_missing" in done.stderr
    assert not (entry / "flavours.json").exists()
    assert not (tmp_path / "twice-kit").exists()


def test_without_tensorrt_and_with_an_image_it_makes_a_kit_and_tells_the_line(
    entry: Path, tmp_path: Path
) -> None:
    done = servegate("convert", "trt", entry, "--image", IMAGE, folder=tmp_path)
    assert done.returncode == 1
    assert "try: docker run --rm --gpus all" in done.stderr
    assert (tmp_path / "twice-kit" / "onsite.py").is_file()


def test_the_docker_line_is_data_and_can_be_run_by_a_shell(entry: Path, tmp_path: Path) -> None:
    words = ("--print", "docker", "--image", IMAGE, "--kit", "my kit")
    done = servegate("convert", "trt", entry, *words, folder=tmp_path)
    assert done.returncode == 0
    line = shlex.split(done.stdout)
    assert line[:3] == ["docker", "run", "--rm"]
    assert f"type=bind,source={tmp_path / 'my kit'},target=/kit" in line
    assert "--built my kit" in done.stderr


def test_a_kit_is_taken_again_by_what_would_make_the_same(entry: Path, tmp_path: Path) -> None:
    for shown in ("docker", "job"):
        words = ("--print", shown, "--image", IMAGE)
        done = servegate("convert", "trt", entry, *words, folder=tmp_path)
        assert (done.returncode, "twice-kit" in done.stdout) == (0, True), done.stderr
    (tmp_path / "twice-kit" / "plan").write_text("what was built meanwhile")
    other = ("--print", "job", "--image", IMAGE, "--tf32")
    done = servegate("convert", "trt", entry, *other, folder=tmp_path)
    assert done.returncode == 2
    assert "was made of something else" in done.stderr and "--kit OTHER" in done.stderr
    assert (tmp_path / "twice-kit" / "plan").is_file()


def test_the_job_is_yaml_for_the_gpu_that_will_serve(entry: Path, tmp_path: Path) -> None:
    words = ("--print", "job", "--image", IMAGE, "--claim", "kits", "--gpu-product", "NVIDIA-L4")
    done = servegate("convert", "trt", entry, *words, folder=tmp_path)
    job = yaml.safe_load(done.stdout)
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "plan-twice")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "kits"


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


def test_a_kit_that_was_built_becomes_a_flavour(entry: Path, tmp_path: Path) -> None:
    kit = tmp_path / "twice-kit"
    servegate("convert", "trt", entry, "--print", "docker", "--image", IMAGE, folder=tmp_path)
    put_tools(kit)
    onsite.run(kit, lambda: DEVICE)
    done = servegate("convert", "trt", entry, "--built", kit, "--json")
    assert done.returncode == 0
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["type"], last["flavours"]) == ("result", ["plan-sm90"])
    assert flavours(entry) == ["plan-sm90"]
    assert (entry / "1" / "model.plan-sm90.plan").is_file()


def test_a_plan_with_wrong_answers_is_refused_by_the_gate(entry: Path, tmp_path: Path) -> None:
    kit = tmp_path / "twice-kit"
    servegate("convert", "trt", entry, "--print", "docker", "--image", IMAGE, folder=tmp_path)
    put_tools(kit, factor=2.01)
    onsite.run(kit, lambda: DEVICE)
    done = servegate("convert", "trt", entry, "--built", kit)
    assert done.returncode == 7
    assert "code: numbers_differ" in done.stderr
    assert not (entry / "flavours.json").exists()
    assert [each.name for each in (entry / "1").iterdir()] == ["model.onnx"]


def test_the_accelerated_flavour_needs_no_gpu_to_be_added(entry: Path) -> None:
    done = servegate("convert", "trt", entry, "--flavour", "onnx+trt")
    assert done.returncode == 0
    assert flavours(entry) == ["onnx+trt"]


def test_a_node_that_tensorrt_cannot_take_ends_it_before_anything_is_made(
    entry: Path, tmp_path: Path
) -> None:
    (entry / "1" / "model.onnx").write_bytes(doubling("StringConcat"))
    words = ("--print", "docker", "--image", IMAGE)
    done = servegate("convert", "trt", entry, *words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "code: trt_unsupported" in done.stderr
    assert "'twice'" in done.stderr
    assert not (tmp_path / "twice-kit").exists()


def test_a_profile_that_does_not_fit_is_told_with_its_input(entry: Path) -> None:
    done = servegate("convert", "trt", entry, "--profile", "x=1x3:4x3:4x3", "--print", "trtexec")
    assert done.returncode == 1
    assert "code: trt_profile" in done.stderr
    assert "batches of up to 8" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--print", "docker"), "--image"),
        (("--name", "twice"), "--out"),
        (("--hardware-compatible", "all"), "ampere+"),
        (("--flavour", "tf-trt"), "onnx+trt"),
    ],
)
def test_words_that_make_no_sense_are_a_mistake_of_use(
    entry: Path, words: tuple[str, ...], said: str
) -> None:
    done = servegate("convert", "trt", entry, *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_folder_that_is_no_entry_is_told_how_to_become_one(tmp_path: Path) -> None:
    done = servegate("convert", "trt", tmp_path)
    assert done.returncode == 2
    assert "--name NAME --out DIR" in done.stderr


def test_an_entry_without_golden_cases_gets_no_plan(tmp_path: Path) -> None:
    entry = write_entry(tmp_path / "models" / "twice", cases=())
    done = servegate("convert", "trt", entry, "--image", IMAGE, folder=tmp_path)
    assert done.returncode == 2
    assert "has no golden cases" in done.stderr
    assert not (tmp_path / "twice-kit").exists()


def test_an_onnx_file_becomes_an_entry_first(tmp_path: Path) -> None:
    (tmp_path / "file.onnx").write_bytes(doubling())
    words = ("--name", "twice", "--out", "models", "--flavour", "onnx+trt", "--json")
    done = servegate("convert", "trt", "file.onnx", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    entry = tmp_path / "models" / "twice"
    assert flavours(entry) == ["onnx+trt"]
    assert (entry / "contract" / "contract.json").is_file()
