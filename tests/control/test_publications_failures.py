"""Versions that are not published: every reason is told, and nobody else is held up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from control.publishing import CONFIG, SIGNATURE, Scene, files, play

from serve.control.publishing.trials import NOT_TRIED
from serve.core.errors import (
    Invalid,
    NoSpace,
    NotFound,
    TrialFailed,
    Unavailable,
)
from serve.core.versions import State
from serve.tensors.contracts import Case, write_contract
from serve.tensors.signature import TensorSpec
from serve.triton import config as triton_config


def test_every_finding_is_told_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.signature = replace(SIGNATURE, outputs=(TensorSpec("z", "FP32", (-1, 2)),))
    bad = files() | {"model_card.json": b"[1]", "contract/contract.json": b"{"}

    async def run() -> None:
        version = await scene.publish("m", bad)
        assert version.state is State.FAILED
        assert "fails its checks" in version.reason
        told = "\n".join(version.findings)
        assert "'z'" in told or "'y'" in told
        assert "model_card.json must hold a JSON object" in told and "contract" in told
        assert all(finding in version.reason for finding in version.findings)
        assert scene.quarantine.orders == [] and scene.uploads.all() == ()
        with pytest.raises(NotFound):
            await scene.storage.manifest("m", 1)

    play(scene, run)


def test_a_file_that_cannot_be_read_fails_with_the_readers_words(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.signature = Invalid("model.onnx is no ONNX file")

    async def run() -> None:
        version = await scene.publish("m", files())
        assert version.state is State.FAILED and "model.onnx is no ONNX file" in version.reason

    play(scene, run)


def test_code_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    python = {"config.pbtxt": b'backend: "python"\n', "1/model.py": b"pass"}

    async def publish(scene: Scene) -> tuple[State, str]:
        version = await scene.publish("m", python)
        return version.state, version.reason

    (tmp_path / "a").mkdir()
    scene = Scene(tmp_path / "a")
    state, reason = play(scene, lambda: publish(scene))
    assert state is State.FAILED and "brings code" in reason
    (tmp_path / "b").mkdir()
    allowing = Scene(tmp_path / "b", allow_code=True)
    state, reason = play(allowing, lambda: publish(allowing))
    assert "brings code" not in reason


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("cc_model_filenames", 'cc_model_filenames { key: "7.5" value: "/etc/passwd" }'),
        (
            "model_warmup.inputs.input_data_file",
            """model_warmup { name: "w" inputs { key: "x" value {
            data_type: TYPE_FP32 dims: 2 input_data_file: "../../../../etc/passwd" } } }""",
        ),
    ],
)
def test_a_configuration_that_names_files_outside_the_version_is_never_loaded(
    tmp_path: Path, field: str, text: str
) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        config = f"{CONFIG}\n{text}".encode()
        version = await scene.publish("m", files() | {"config.pbtxt": config})
        assert version.state is State.FAILED
        assert f"in '{field}' cannot be the path of a file of this model" in version.reason
        assert scene.quarantine.orders == []

    play(scene, run)


def test_without_a_configuration_one_is_written_from_the_model_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        version = await scene.publish("m", files(config=""))
        assert version.state is State.PUBLISHED, version.reason
        message = triton_config.parse(version.config).message
        assert [one.name for one in message.input] == ["x"] and message.backend == "onnxruntime"
        scene.signature = replace(SIGNATURE, format="plan")
        bare = await scene.publish("n", {"1/model.plan": b"plan"})
        assert bare.state is State.FAILED and "config.pbtxt is missing" in bare.reason

    play(scene, run)


def test_labels_preprocessing_and_card_are_read_into_the_record(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    config = CONFIG.replace('name: "y"', 'name: "y" label_filename: "labels.txt"')
    more = {
        "labels.txt": b"cat\ndog\n",
        "preprocessing.json": b'{"a": 1}',
        "model_card.json": b'{"summary": "s"}',
    }

    async def run() -> None:
        version = await scene.publish("m", files(config=config) | more)
        assert version.state is State.PUBLISHED, version.reason
        assert dict(version.output_labels) == {"y": ("cat", "dog")}
        assert (dict(version.preprocessing), dict(version.card)) == ({"a": 1}, {"summary": "s"})
        assert scene.quarantine.trees == [["m/1/model.onnx", "m/config.pbtxt", "m/labels.txt"]]

    play(scene, run)


def test_a_trial_that_fails_fails_the_version(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.quarantine.fails = TrialFailed("it was still loading after 300 s")

    async def run() -> None:
        version = await scene.publish("m", files())
        assert (version.state, version.reason) == (
            State.FAILED,
            "it was still loading after 300 s",
        )
        assert [one async for one in scene.storage.manifests()] == []

    play(scene, run)


def test_a_wrong_answer_in_quarantine_fails_the_version(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    case = Case({"x": np.zeros((1, 4), "float32")}, {"y": np.zeros((1, 2), "float32")})
    contract = dict(write_contract([case]))

    async def run() -> None:
        good = await scene.publish("m", files() | contract)
        assert good.is_published and good.has_contract, good.reason
        scene.wrong = "output 'y'[0] is 1, expected 0"
        bad = await scene.publish("m", files(b"bad") | contract)
        assert bad.state is State.FAILED and "output 'y'[0] is 1, expected 0" in bad.reason

    play(scene, run)


def test_without_a_triton_for_quarantine_the_findings_say_so(tmp_path: Path) -> None:
    scene = Scene(tmp_path, tried=False)

    async def run() -> None:
        version = await scene.publish("m", files())
        assert version.is_published and version.findings == (NOT_TRIED,)
        assert version.memory is None

    play(scene, run)


def test_a_fault_of_our_own_fails_the_version_and_not_the_pipeline(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.quarantine.fails = ZeroDivisionError()

    async def run() -> None:
        failed = await scene.publish("m", files())
        assert failed.state is State.FAILED and failed.reason.startswith("an error in Servegate")
        scene.quarantine.fails = None
        assert (await scene.publish("m", files())).number == 2

    play(scene, run)


@pytest.mark.parametrize("error", [NoSpace("full"), Unavailable("away"), OSError("broken")])
@pytest.mark.parametrize("method", ["add_bytes", "put_manifest"])
def test_failing_surroundings_are_waited_for(tmp_path: Path, method: str, error: Exception) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.push("m", files())
        scene.failing.errors[method] = error
        for pause in (1.0, 2.0, 4.0):
            await scene.pipeline.round()
            waiting = scene.version()
            assert waiting.state in (State.UPLOADED, State.CHECKED)
            assert str(error) in waiting.reason
            attempts = len(scene.quarantine.orders)
            await scene.pipeline.round()  # nothing happens before the pause is over
            assert len(scene.quarantine.orders) == attempts
            scene.clock.now += pause
        scene.failing.errors.clear()
        await scene.pipeline.round()
        assert (scene.version().state, scene.version().reason) == (State.PUBLISHED, "")

    play(scene, run)


def test_one_version_that_waits_does_not_hold_up_another(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        scene.quarantine.fails = Unavailable("away")
        await scene.publish("m", files())
        scene.quarantine.fails = None
        assert (await scene.publish("n", files())).is_published
        assert not scene.version().is_published

    play(scene, run)


def test_an_upload_that_is_gone_fails_the_version(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        version, _ = await scene.push("m", files())
        await scene.uploads.forget(version.upload)
        await scene.pipeline.round()
        assert scene.version().state is State.FAILED and "no upload" in scene.version().reason

    play(scene, run)


def test_of_very_many_findings_a_version_keeps_the_first_and_how_many_more_there_are(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    sizes = ", ".join(str(size) for size in range(9, 5009))
    more = f"dynamic_batching {{ preferred_batch_size: [ {sizes} ] }}"

    async def run() -> None:
        version = await scene.publish("m", files(config=CONFIG + more))
        assert len(version.findings) == 101
        assert version.findings[-1] == "and 4900 more"

    play(scene, run)


def test_a_reason_is_no_longer_than_people_can_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        broken = CONFIG + "version_policy { specific { versions: " + "9" * 500_000 + " } }"
        version = await scene.publish("m", files(config=broken))
        assert version.state is State.FAILED
        assert len(version.reason) < 30_000

    play(scene, run)


def test_a_second_configuration_of_a_model_with_the_longest_name_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    longest = "n" * 255

    async def run() -> None:
        await scene.publish(longest, files())
        other = CONFIG.replace("max_batch_size: 8", "max_batch_size: 4")
        version = await scene.publish(longest, files(config=other))
        assert (version.number, version.state) == (2, State.FAILED)
        assert "more than 255 characters" in version.reason

    play(scene, run)
