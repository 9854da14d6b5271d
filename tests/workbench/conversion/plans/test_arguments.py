"""The command lines: what trtexec and docker are told, and what they never are."""

import csv
import shlex
from itertools import pairwise, product

from serve.workbench.conversion.plans.arguments import Options, as_line, docker, major_of, trtexec
from serve.workbench.conversion.plans.facts import Hardware
from serve.workbench.conversion.plans.profiles import parse_profile

IMAGE = "nvcr.io/nvidia/tritonserver:26.07-py3"
PROFILES = tuple(map(parse_profile, ("x=1x8:4x8:8x8", "serve:ids=1x5:1x5:1x5")))


def test_trtexec_ten_is_told_everything_and_that_types_are_strong() -> None:
    options = Options(
        PROFILES[:1],
        version_compatible=True,
        hardware=Hardware.AMPERE,
        workspace=2 << 30,
        timing_cache="/cache",
    )
    assert trtexec(options, onnx="m.onnx", plan="m.plan", layers="l.json", major=10) == (
        "--onnx=m.onnx",
        "--saveEngine=m.plan",
        "--skipInference",
        "--stronglyTyped",
        "--minShapes=x:1x8",
        "--optShapes=x:4x8",
        "--maxShapes=x:8x8",
        "--memPoolSize=workspace:2048M",
        "--noTF32",
        "--versionCompatible",
        "--hardwareCompatibilityLevel=ampere+",
        "--timingCacheFile=/cache",
        "--profilingVerbosity=detailed",
        "--exportLayerInfo=l.json",
    )


def test_trtexec_eleven_knows_nothing_but_strong_types() -> None:
    words = trtexec(Options(tf32=True), onnx="m.onnx", plan="m.plan", major=11)
    assert words == ("--onnx=m.onnx", "--saveEngine=m.plan", "--skipInference")


def test_no_flag_ever_chooses_a_precision() -> None:
    refused = ("--fp16", "--bf16", "--int8", "--fp8", "--best", "--precision", "--calib")
    for major, tf32, hardware in product((10, 11), (False, True), Hardware):
        options = Options(PROFILES, tf32, True, hardware, 1, "c")
        words = trtexec(options, onnx="m", plan="p", major=major)
        assert not [word for word in words if word.startswith((*refused, "--layerP"))]


def test_the_tag_of_an_image_tells_its_tensorrt() -> None:
    for image, major in (
        (IMAGE, 11),
        ("nvcr.io/nvidia/tritonserver:26.06-py3", 11),
        ("nvcr.io/nvidia/tritonserver:26.05-py3", 10),
        ("nvcr.io/nvidia/tritonserver:25.10-py3-min", 10),
        ("registry:5000/triton:27.01", 11),
        ("registry:5000/triton", 10),
        ("registry/triton@sha256:" + "26" * 32, 10),
    ):
        assert major_of(image) == major, image


def test_docker_gives_the_kit_and_nothing_else() -> None:
    words = docker("/kits/digits", image=IMAGE, user=1000, group=100)
    line = as_line(words)
    assert shlex.split(line) == list(words)
    assert words[-4:] == (IMAGE, "python3", "/kit/onsite.py", "/kit")
    assert {
        ("--gpus", "all"),
        ("--network", "none"),
        ("--user", "1000:100"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--mount", "type=bind,source=/kits/digits,target=/kit"),
        ("--env", f"IMAGE={IMAGE}"),
    } <= set(pairwise(words))
    assert "--read-only" in words
    assert "--privileged" not in words


def test_a_folder_of_any_name_reaches_docker_whole() -> None:
    for kit in ("/my kits/a", "/a,b", '/a"b', "/a'b;rm -rf $HOME", "/ä:ö"):
        words = shlex.split(as_line(docker(kit, image=IMAGE, user=1, group=1)))
        mount = words[words.index("--mount") + 1]
        assert next(csv.reader([mount])) == ["type=bind", f"source={kit}", "target=/kit"]
