"""Building kits: made here, built where the GPU is, and judged here."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.core.errors import ConversionFailed, GateRefused
from serve.processes import sweep_shared_memory
from serve.tensors.codec import http_request, read_http_reply
from serve.tensors.contracts import Case
from serve.triton.backend_directory import build_backend_directory
from serve.triton.config import parse
from serve.triton.installation import Installation, MachineFacts
from serve.workbench.conversion.plans import onsite
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.facts import Hardware
from serve.workbench.conversion.plans.kits import Built, read_kit

from .kit_scene import DEVICE, IMAGE, case, doubling, make_kit, put_tools, write_entry

CASES = (case(0), case(1))


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_entry(tmp_path / "twice")


@pytest.fixture
def kit(tmp_path: Path, entry: Path) -> Path:
    made = make_kit(tmp_path / "kit", entry)
    put_tools(made)
    return made


def result(kit: Path, entry: Path, cases: Sequence[Case] = CASES) -> Built:
    return read_kit(kit, onnx=entry / "1" / "model.onnx", cases=cases)


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
    onsite.run(kit, lambda: DEVICE)
    built = result(kit, entry)
    assert built.file.read_bytes().endswith(doubling())
    facts = built.facts
    assert (facts.tensorrt, facts.compute_capability, facts.device) == ("10.13.2.6", *DEVICE)
    assert (facts.image, dict(facts.layers)) == (IMAGE, {"fp32": 1})
    assert str(facts.profiles[0]) == "x=1x3:8x3:8x3"
    assert facts.seconds > 0


def test_a_plan_that_answers_wrongly_is_refused_by_its_case(kit: Path, entry: Path) -> None:
    onsite.run(make_again(kit, entry, factor=2.1), lambda: DEVICE)
    with pytest.raises(GateRefused, match="golden case rows 0: output 'y'") as refused:
        result(kit.with_name("again"), entry)
    assert refused.value.code == "numbers_differ"


def make_again(kit: Path, entry: Path, **tools: Any) -> Path:
    again = make_kit(kit.with_name("again"), entry)
    put_tools(again, **tools)
    return again


def cut_answer(kit: Path) -> None:
    (kit / "answer-0.body").write_bytes(b"{}")


def change_plan(kit: Path) -> None:
    (kit / "model.plan").write_bytes(b"ftrt and something else")


def forget_result(kit: Path) -> None:
    (kit / "built.json").unlink()


def break_result(kit: Path) -> None:
    (kit / "built.json").write_text("[" * 100_000)


def lose_a_fact(kit: Path) -> None:
    page = json.loads((kit / "built.json").read_text())
    del page["compute_capability"]
    (kit / "built.json").write_text(json.dumps(page))


def lose_an_answer(kit: Path) -> None:
    page = json.loads((kit / "built.json").read_text())
    (kit / "built.json").write_text(json.dumps(page | {"answers": page["answers"][:1]}))


@pytest.mark.parametrize(
    "harm",
    [cut_answer, change_plan, forget_result, break_result, lose_a_fact, lose_an_answer],
)
def test_a_kit_that_is_not_whole_brings_no_plan(
    kit: Path, entry: Path, harm: Callable[[Path], None]
) -> None:
    onsite.run(kit, lambda: DEVICE)
    harm(kit)
    with pytest.raises(ConversionFailed) as refused:
        result(kit, entry)
    assert refused.value.code == "trt_build_failed"


def test_a_kit_of_another_onnx_file_brings_no_plan(kit: Path, entry: Path) -> None:
    onsite.run(kit, lambda: DEVICE)
    (entry / "1" / "model.onnx").write_bytes(doubling("Mul"))
    with pytest.raises(ConversionFailed, match="another ONNX file"):
        result(kit, entry)


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ({"trtexec": 3}, "trtexec failed with exit status 3"),
        ({"triton": 4}, "Triton cannot serve the plan"),
    ],
)
def test_on_the_spot_a_tool_that_fails_is_the_end(
    kit: Path, entry: Path, tools: dict[str, int], why: str
) -> None:
    again = make_again(kit, entry, **tools)
    with pytest.raises(onsite.Failed, match=why):
        onsite.run(again, lambda: DEVICE)
    assert not (again / "built.json").exists()


def test_an_earlier_result_does_not_outlive_a_build_that_fails(kit: Path, entry: Path) -> None:
    again = make_again(kit, entry)
    onsite.run(again, lambda: DEVICE)
    page = json.loads((again / "kit.json").read_text())
    page["trtexec"][3] = "1"
    (again / "kit.json").write_text(json.dumps(page))
    with pytest.raises(onsite.Failed):
        onsite.run(again, lambda: DEVICE)
    assert not (again / "built.json").exists()
    assert not (again / "model.plan").exists()


def test_the_program_needs_nothing_but_python_and_says_in_a_line_what_it_lacks(kit: Path) -> None:
    """No site packages, nothing of ours; here it ends at the driver, which is not there."""
    words = [sys.executable, "-I", "-S", str(kit / "onsite.py"), str(kit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", env={})
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no NVIDIA driver")
    assert "Traceback" not in done.stderr


class Driver:
    """Plays libcuda for one device of compute capability 8.9."""

    def __init__(self, code: int = 0) -> None:
        self._code = code

    def cuInit(self, flags: int) -> int:
        return self._code

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = b"NVIDIA L4"
        return 0

    def cuDeviceGetAttribute(self, number: Any, attribute: int, device: Any) -> int:
        number._obj.value = {75: 8, 76: 9}[attribute]
        return 0


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
