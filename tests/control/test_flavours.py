"""Flavours: published, chosen by what is known of the machine, and given up when they fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import write_model
from control.publishing import Scene as Publishing
from control.publishing import files

from serve.control.publication.trials import NO_FORM
from serve.control.versions import PublishedVersion
from serve.core.errors import TrialFailed, TritonFailed
from serve.core.flavours import BASE, UNKNOWN, Machine, VersionFlavours
from serve.core.versions import VersionState
from serve.triton.config import of_json

from .keeping import FakeProof, FakeTriton, Scene, nothing
from .versions_scene import CONFIG, split, version

H100 = Machine("9.0", "10.13.2", gpu=True)
GPU = Machine(gpu=True)
PLAN = {
    "name": "plan-sm90",
    "file": "model.plan-sm90.plan",
    "backend": "tensorrt",
    "needs": {"compute_capability": ["9.0"], "tensorrt": ["10.13.2"]},
}
FAST = {"name": "fast", "needs": {"gpu": True}, "config": {"optimization": {"graph": {"level": 1}}}}


def several(number: int = 1, *, base: bool = True, **more: Any) -> PublishedVersion:
    """A published version with two flavours and, unless it is said, the base."""
    page = {"format": 1, "base": base, "flavours": [PLAN, FAST]}
    flavours = VersionFlavours.parse(json.dumps(page)).text()
    return version("m", number, **({"flavours": flavours} | more))


class Picky(FakeTriton):
    """Refuses models by their model file, tells what is loaded, and remembers in which form."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[str] = set()
        self.forms: list[str] = []

    async def load(self, model: str, config: str | None) -> None:
        message = of_json(config or "{}").message
        fast = "fast" if message.optimization.graph.level else "base"
        form = message.default_model_filename or fast
        self.forms.append(form)
        if form in self.refuses:
            raise TritonFailed(f"{form} cannot be read")
        await super().load(model, config)
        self.configs[model] = str(message)


class Flavoured(Scene):
    """Replica a runs on a machine, and its Triton refuses some forms of a model."""

    triton: Picky

    def __init__(
        self, folder: Path, machine: Machine, *versions: PublishedVersion, refuses: str = ""
    ) -> None:
        super().__init__(folder)
        self.triton, self.machine = Picky(), machine
        self.triton.refuses |= set(refuses.split())
        self.use(FakeProof())
        self.publish(*versions)


@pytest.mark.parametrize(
    ("machine", "form", "name"),
    [(H100, "model.plan-sm90.plan", "plan-sm90"), (GPU, "fast", "fast"), (UNKNOWN, "base", "base")],
)
def test_a_replica_loads_the_first_flavour_that_its_machine_can_run(
    tmp_path: Path, machine: Machine, form: str, name: str
) -> None:
    one = Flavoured(tmp_path, machine, several())
    one.play(nothing)
    assert (one.triton.forms, one.triton.held) == ([form], {"m": {1}})
    status = one.plane.models.version("m", 1)
    assert (status.flavours, status.problems) == ({"a": name}, ())
    assert one.plane.models.get("m").problems == ()


def test_when_a_flavour_does_not_load_the_next_is_tried_at_once_and_that_is_told(
    tmp_path: Path,
) -> None:
    one = Flavoured(tmp_path, H100, several(), refuses="model.plan-sm90.plan fast")
    one.play(nothing, nothing, nothing, nothing)
    assert one.triton.forms == ["model.plan-sm90.plan", "fast", "base"]
    status = one.plane.models.version("m", 1)
    assert (status.state, status.replicas, status.flavours) == ("ready", ("a",), {"a": "base"})
    assert one.plane.models.get("m").problems == (
        "version 1: replica a cannot run flavour 'plan-sm90': model.plan-sm90.plan cannot be read",
        "version 1: replica a cannot run flavour 'fast': fast cannot be read",
    )


async def test_a_flavour_that_answers_wrongly_gives_way_before_it_is_called(tmp_path: Path) -> None:
    one = Flavoured(tmp_path, GPU, several())
    one.proof.wrong = {1: "output 'y' is off"}
    await one.round()
    assert one.targets() == {}
    one.proof.wrong = {}
    await one.round()
    assert one.triton.forms == ["fast", "base"]
    assert one.targets() == {1: ("m", ("a",))}
    assert "output 'y' is off" in one.plane.models.get("m").problems[0]


def test_the_last_flavour_fails_like_any_model(tmp_path: Path) -> None:
    one = Flavoured(tmp_path, GPU, several(), refuses="fast base")
    one.play(nothing, nothing)
    assert one.triton.forms == ["fast", "base"]
    assert one.plane.models.version("m", 1).reason == "base cannot be read"
    one.plane.clock.now += 11
    one.play(nothing)
    assert one.triton.forms == ["fast", "base", "base"]


def test_a_replica_that_can_run_no_flavour_holds_nothing_and_the_version_says_why(
    tmp_path: Path,
) -> None:
    one = Flavoured(tmp_path, UNKNOWN, several(base=False))
    one.play(nothing)
    status = one.plane.models.version("m", 1)
    assert (one.triton.forms, status.state) == ([], VersionState.FAILED)
    assert status.reason == (
        "replica a cannot run any of its flavours: 'plan-sm90': it needs compute capability 9.0 "
        "(found: none); 'fast': it needs a GPU (found: none)"
    )


def test_a_failed_flavour_is_tried_again_when_something_else_is_pushed(tmp_path: Path) -> None:
    one = Flavoured(tmp_path, GPU, several(), refuses="fast")

    def push() -> None:
        one.triton.refuses.clear()
        one.publish(several(), several(2), route__m=split(v1=100))

    one.play(nothing, nothing, push, nothing)
    assert one.triton.forms == ["fast", "base", "fast"]
    assert one.plane.models.version("m", 1).flavours == {"a": "fast"}
    assert one.proof.asked.count("verify 1") == 2  # once in each form


def test_a_failed_flavour_is_tried_again_when_somebody_loads_the_model_or_it_comes_back_empty(
    tmp_path: Path,
) -> None:
    one = Flavoured(tmp_path, GPU, several(), refuses="fast")

    def start() -> None:
        one.triton.is_up = True
        one.triton.held.clear()

    forms = ["fast", "base"]
    one.play(nothing, lambda: setattr(one.triton, "is_up", False), start, nothing)
    assert one.triton.forms == 2 * forms
    one.play(one.triton.refuses.clear, lambda: one.keeper.load_again("m"), nothing)
    assert one.triton.forms == [*forms, *forms, "fast"]


async def test_a_command_to_load_is_settled_only_when_the_next_flavour_was_tried(
    tmp_path: Path,
) -> None:
    one = Flavoured(tmp_path, GPU, several(), refuses="fast")
    one.keeper.load_again("m")
    await one.round()
    assert (one.triton.forms, one.keeper.is_settled("m")) == (["fast"], False)
    await one.round()
    assert (one.triton.forms, one.keeper.is_settled("m")) == (["fast", "base"], True)


def test_what_an_earlier_control_plane_has_loaded_is_recognised(tmp_path: Path) -> None:
    one = Flavoured(tmp_path, H100, several())
    one.play()
    one.use(FakeProof())  # which knows nothing of that
    one.fleet.flavours.clear()
    one.play(nothing)
    assert one.triton.forms == ["model.plan-sm90.plan"]
    assert one.plane.models.version("m", 1).flavours == {"a": "plan-sm90"}


def test_an_earlier_fallback_is_recognised_and_the_better_flavour_proven_anew(
    tmp_path: Path,
) -> None:
    one = Flavoured(tmp_path, GPU, several(), refuses="fast")
    one.play(nothing)
    one.triton.refuses.clear()
    one.use(FakeProof())
    one.play(nothing)
    assert one.triton.forms == ["fast", "base", "fast"]
    assert one.proof.asked == ["warm 1", "verify 1"]


def test_a_plain_folder_may_have_flavours_too(tmp_path: Path) -> None:
    one = Flavoured(tmp_path, GPU)
    folder = write_model(one.repository, "plain", 1, config=CONFIG)
    page = {"format": 1, "flavours": [FAST]}
    (one.repository / "plain" / "flavours.json").write_text(json.dumps(page))
    one.play(nothing)
    assert one.triton.forms == ["fast"], folder
    (one.repository / "plain" / "flavours.json").write_text("[]")
    one.play(nothing)
    assert "flavours.json cannot be read" in one.plane.models.get("plain").problems[0]
    assert one.triton.held == {"plain": {1}}


# --- publishing: checked, tried as far as the machine goes, and recorded --------------------------

FASTER = {"name": "fast", "file": "fast.onnx", "needs": {"gpu": True}}


def given(*flavours: dict[str, Any], **more: Any) -> dict[str, bytes]:
    page = {"format": 1, "flavours": list(flavours or (FASTER,)), **more}
    return files() | {"1/fast.onnx": b"a faster one", "flavours.json": json.dumps(page).encode()}


def forms(scene: Publishing) -> list[str]:
    """The model files that quarantine was told to load, one Triton after the other."""
    orders = [json.loads(order.config_json) for (order,) in scene.quarantine.orders]
    return [config.get("default_model_filename", BASE) for config in orders]


async def test_flavours_are_recorded_and_stay_hidden_from_triton(scene: Publishing) -> None:
    version = await scene.publish("m", given())
    assert version.is_published, version.reason
    assert [one.name for one in version.forms.candidates] == ["fast", BASE]
    assert scene.quarantine.trees == [["m/1/fast.onnx", "m/1/model.onnx", "m/config.pbtxt"]]
    assert forms(scene) == [BASE]  # the one that a machine without a GPU can run


async def test_another_order_of_flavours_is_another_name_in_triton(scene: Publishing) -> None:
    other = {"name": "other", "needs": {"gpu": True}}
    plain = await scene.publish("m", files(b"plain"))
    first = await scene.publish("m", given(FASTER, other))
    again = await scene.publish("m", given(FASTER, other, base=True) | {"1/more": b""})
    second = await scene.publish("m", given(other, FASTER))
    assert (plain.physical, first.physical) == ("m", again.physical)
    fewer = await scene.publish("m", given(FASTER, other, base=False))
    assert len({one.physical for one in (plain, first, second, fewer)}) == 4


async def test_quarantine_tries_what_its_machine_can_run_and_names_what_fails(
    tmp_path: Path,
) -> None:
    scene = await Publishing(tmp_path, machine=Machine(gpu=True)).begin()
    assert (await scene.publish("m", given())).is_published
    assert forms(scene) == [BASE, "fast.onnx"]
    scene.quarantine.fails = TrialFailed("it did not load", why="no kernel")
    version = await scene.publish("m", given(base=False))
    assert version.state is VersionState.FAILED
    assert version.reason == "flavour 'fast': it did not load: no kernel"


async def test_a_version_that_quarantine_cannot_run_says_that_it_was_not_tried(
    scene: Publishing,
) -> None:
    version = await scene.publish("m", given(base=False))
    assert version.is_published and NO_FORM in version.findings
    assert (forms(scene), version.memory) == ([], None)


OLD_PLAN = {"name": "p", "file": "p.plan", "backend": "tensorrt", "needs": {"tensorrt": ["9.9"]}}
RECORDED = {"format": 1, "plans": {"p": {"tensorrt": "10.13.2"}}}
PLANS = {"1/p.plan": b"", "plans.json": json.dumps(RECORDED).encode()}


@pytest.mark.parametrize(
    ("upload", "reason"),
    [
        (given({"name": "f", "colour": "red"}), "flavours-malformed"),
        (given({"name": "f", "file": "none.onnx"}), "flavour 'f': default_model_filename"),
        (given({"name": "f", "config": {"max_batch_size": 4}}), "config.max_batch_size"),
        (given({"name": "f", "file": "fast.onnx", "backend": "python"}), "can run code"),
        (given() | {"flavours.json": b"\xff"}, "not UTF-8"),
        (given(OLD_PLAN) | PLANS, "the plan was built for 10.13.2"),
    ],
)
async def test_flavours_that_are_wrong_are_not_published(
    scene: Publishing, upload: dict[str, bytes], reason: str
) -> None:
    version = await scene.publish("m", upload)
    assert version.state is VersionState.FAILED
    assert reason in " ".join((version.reason, *version.findings))
