"""Building kits: made here, built where the GPU is, and judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed, GateRefused
from serve.processes import sweep_shared_memory
from serve.tensors.codec import http_request, read_http_reply
from serve.triton.backend_directory import build_backend_directory
from serve.triton.config import parse
from serve.triton.installation import Installation, MachineFacts
from serve.workbench.conversion.plans import onsite
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.facts import Hardware
from serve.workbench.conversion.plans.kits import Built, read_kit

from .kit_scene import DEVICE, IMAGE, case, doubling, make_kit, put_tools, write_entry
from .played_tensorrt import Driver

CASES = (case(0), case(1))


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_entry(tmp_path / "twice")


@pytest.fixture
def kit(tmp_path: Path, entry: Path) -> Path:
    return make_kit(tmp_path / "kit", entry)


def build(kit: Path, **tools: Any) -> None:
    """Where the GPU is, with our programs in the place of trtexec and Triton."""
    put_tools(kit, **tools)
    onsite.run(kit, lambda: DEVICE)


def result(kit: Path, entry: Path) -> Built:
    return read_kit(kit, onnx=entry / "1" / "model.onnx", cases=CASES)


def test_a_kit_says_how_the_plan_is_built_and_served(tmp_path: Path, entry: Path) -> None:
    options = Options(version_compatible=True, hardware=Hardware.AMPERE)
    kit = make_kit(tmp_path / "kit", entry, options=options)
    assert {each.name for each in kit.iterdir()} == {
        *("kit.json", "onsite.py", "model.onnx", "config.pbtxt"),
        *("case-0.body", "case-1.body"),
    }
    page = json.loads((kit / "kit.json").read_text())
    assert page["trtexec"][0] == "/usr/src/tensorrt/bin/trtexec"
    assert {"--versionCompatible", "--onnx={kit}/model.onnx"} <= set(page["trtexec"])
    assert page["triton"] == [
        "tritonserver",
        "--backend-config=tensorrt,version-compatible=true",
    ]


def test_its_configuration_serves_the_plan_alone_and_on_a_gpu(kit: Path) -> None:
    message = parse((kit / "config.pbtxt").read_text()).message
    assert (message.backend, message.default_model_filename) == ("tensorrt", "model.plan")
    assert (message.name, message.platform, message.max_batch_size) == ("twice", "", 8)
    assert [each.kind for each in message.instance_group] == [
        type(message.instance_group[0]).KIND_GPU
    ]
    assert not message.output[0].label_filename
    assert not message.HasField("version_policy")


def test_a_plan_that_was_built_and_answers_rightly_comes_back_with_its_facts(
    kit: Path, entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGE", IMAGE)
    build(kit)
    built = result(kit, entry)
    assert built.file.read_bytes().endswith(doubling())
    facts = built.facts
    assert (facts.tensorrt, facts.compute_capability, facts.device) == ("10.13.2.6", *DEVICE)
    assert (facts.image, dict(facts.layers)) == (IMAGE, {"fp32": 1})
    assert str(facts.profiles[0]) == "x=1x3:8x3:8x3"
    assert facts.seconds > 0


def test_a_plan_that_answers_wrongly_is_refused_by_its_case(kit: Path, entry: Path) -> None:
    build(kit, factor=2.1)
    with pytest.raises(GateRefused, match="golden case rows 0: output 'y'") as refused:
        result(kit, entry)
    assert refused.value.code == "numbers_differ"


def test_a_kit_that_is_not_whole_or_of_another_file_brings_no_plan(kit: Path, entry: Path) -> None:
    build(kit)
    page = json.loads((kit / "built.json").read_text())
    less = {name: value for name, value in page.items() if name != "compute_capability"}
    harms = (
        ("answer-0.body", b"{}"),
        ("model.plan", b"ftrt and something else"),
        ("built.json", b"[" * 100_000),
        ("built.json", json.dumps(less).encode()),
        ("built.json", json.dumps(page | {"answers": page["answers"][:1]}).encode()),
    )
    for name, harmed in harms:
        whole = (kit / name).read_bytes()
        (kit / name).write_bytes(harmed)
        refused = refusal(ConversionFailed, result, kit, entry)
        assert refused.code == "trt_build_failed", (name, harmed[:99])
        (kit / name).write_bytes(whole)
    (kit / "built.json").rename(kit / "elsewhere.json")
    assert refusal(ConversionFailed, result, kit, entry).code == "trt_build_failed"
    (kit / "elsewhere.json").rename(kit / "built.json")
    result(kit, entry)
    (entry / "1" / "model.onnx").write_bytes(doubling("Mul"))
    assert "another ONNX file" in str(refusal(ConversionFailed, result, kit, entry))


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ({"trtexec": 3}, "trtexec failed with exit status 3"),
        ({"triton": 4}, "Triton cannot serve the plan"),
    ],
)
def test_on_the_spot_a_tool_that_fails_is_the_end_and_leaves_no_earlier_result(
    kit: Path, tools: dict[str, int], why: str
) -> None:
    for name in ("built.json", "model.plan"):
        (kit / name).write_text("of an earlier build")
    with pytest.raises(onsite.Failed, match=why):
        build(kit, **tools)
    assert not (kit / "built.json").exists()
    assert (kit / "model.plan").exists() is ("triton" in tools)


def test_the_program_needs_nothing_but_python_and_says_in_a_line_what_it_lacks(kit: Path) -> None:
    """No site packages, nothing of ours; here it ends at the driver, which is not there."""
    words = [sys.executable, "-I", "-S", str(kit / "onsite.py"), str(kit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", env={})
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no NVIDIA driver")
    assert "Traceback" not in done.stderr


def test_the_driver_tells_compute_capability_and_name() -> None:
    assert onsite.first_device(lambda name: Driver()) == ("8.9", "NVIDIA L4")
    with pytest.raises(onsite.Failed, match="CUDA error 100"):
        onsite.first_device(lambda name: Driver(100))


@pytest.mark.triton
@pytest.mark.slow
def test_a_real_triton_answers_the_cases_of_a_kit(tmp_path: Path, kit: Path) -> None:
    """The ONNX file stands for the plan: here is no GPU."""
    installed = Installation.find(MachineFacts.here())
    backends = build_backend_directory(installed, tmp_path)
    version = tmp_path / "repository" / "twice" / "1"
    version.mkdir(parents=True)
    (version / "model.plan").write_bytes(doubling())
    text = (kit / "config.pbtxt").read_text().replace("KIND_GPU", "KIND_CPU")
    (version.parent / "config.pbtxt").write_text(text.replace('"tensorrt"', '"onnxruntime"'))
    environment = installed.environment({"PATH": os.environ["PATH"]})
    words = ["env", *(f"{name}={value}" for name, value in environment.items())]
    words += [str(installed.binary), f"--backend-directory={backends}"]
    prefix = f"kit-{os.getpid()}-"
    words.append(f"--backend-config=python,shm-region-prefix-name={prefix}")
    asked = [http_request(one.inputs) for one in CASES]
    try:
        answers = onsite.ask(
            version.parents[1], "twice", words, [(one.body, one.head_length) for one in asked]
        )
    finally:
        sweep_shared_memory(prefix)
    for one, (body, head) in zip(CASES, answers, strict=True):
        assert np.array_equal(read_http_reply(body, head).outputs["y"], one.outputs["y"])
