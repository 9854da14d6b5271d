"""Flavours on replicas: chosen by what is known of the machine, and given up when they fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import write_model

from serve.control.versions import PublishedVersion
from serve.core.errors import TritonFailed
from serve.core.flavours import UNKNOWN, Machine, VersionFlavours
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
    [
        (H100, "model.plan-sm90.plan", "plan-sm90"),
        (GPU, "fast", "fast"),
        (UNKNOWN, "base", "base"),
    ],
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
