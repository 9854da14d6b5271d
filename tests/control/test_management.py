"""Management calls: what they decide, when they are done, and what is left when they fail."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from builders import CONFIG, until, write_model

from serve.control.decisions import LOGGING, SERVING, TRACE
from serve.control.management import ManagementCommands
from serve.control.models import By
from serve.control.observations import LoadFailure
from serve.control.reconciliation.keepers import Keepers
from serve.core.errors import (
    DeadlineExceeded,
    FixedSetting,
    LoadFailed,
    ModelControlOff,
    NotInRepository,
    ServegateError,
    TritonFailed,
    Unavailable,
    UnreadableConfiguration,
)
from serve.triton.control import Settings

from .keeping import Scene

BY = By("ada", "a test")
PATIENCE = 10.0  # seconds; a bound
OTHER = '{"backend": "onnxruntime", "max_batch_size": 8, "version_policy": {"all": {}}}'


class Managed(Scene):
    """A scene whose keeper runs beside the commands."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.settings: dict[tuple[str, str], Settings] = {}
        self.refused = ""
        self.triton.settings = self._settings  # type: ignore[attr-defined]
        self.management = ManagementCommands(
            self.plane.store,
            self.plane.inventory,
            self.fleet,
            self.plane.publisher,
            Keepers(self.keeper),
            decisions=lambda: self.plane.decisions,
            reload=self._reload,
        )

    async def _reload(self) -> None:
        await self.plane.reload()
        self.keeper.wake()

    async def _settings(self, kind: str, model: str, changes: Settings) -> Settings:
        if self.refused:
            raise TritonFailed(self.refused)
        held = {**self.settings.get((kind, model), {}), **changes}
        self.settings[kind, model] = held
        return held

    def act(self, *commands: Callable[[ManagementCommands], Awaitable[Any]]) -> list[Any]:
        """Do one after the other while the keeper runs; gives what each said or raised."""

        async def scenario() -> list[Any]:
            said: list[Any] = []
            await self.round()
            keeping = asyncio.create_task(self.keeper.run())
            try:
                for command in commands:
                    try:
                        said.append(await asyncio.wait_for(command(self.management), PATIENCE))
                    except ServegateError as error:
                        said.append(error)
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
            return said

        return asyncio.run(scenario())


@pytest.fixture
def scene(tmp_path: Path) -> Managed:
    """Versions 1 and 2 of model m are in the folder."""
    scene = Managed(tmp_path)
    write_model(scene.repository)
    return scene


def load(
    name: str = "m", config: str | None = None
) -> Callable[[ManagementCommands], Awaitable[None]]:
    return lambda management: management.load(name, config, BY, PATIENCE)


def unload(name: str = "m", **options: bool) -> Callable[[ManagementCommands], Awaitable[None]]:
    return lambda management: management.unload(name, BY, PATIENCE, **options)


def change(
    kind: str, model: str = "", **settings: Any
) -> Callable[[ManagementCommands], Awaitable[Any]]:
    return lambda management: management.change(kind, model, settings, BY, PATIENCE)


def test_a_load_call_loads_anew_what_is_loaded(scene: Managed) -> None:
    assert scene.act(load()) == [None]
    assert scene.triton.asked == ["load m", "load m"]


def test_an_unloaded_model_stays_unloaded_until_it_is_loaded(scene: Managed) -> None:

    async def look(management: ManagementCommands) -> tuple[object, ...]:
        await scene.round()
        served = "m" in scene.plane.publisher.snapshot.models
        return dict(scene.triton.held), served, scene.plane.models.get("m").state

    assert scene.act(unload(), look, load(), look) == [
        None,
        ({}, False, "unloaded"),
        None,
        ({"m": {1, 2}}, True, "ready"),
    ]


def test_a_configuration_stands_for_the_one_on_disk_until_the_next_plain_load(
    scene: Managed,
) -> None:

    async def size(management: ManagementCommands) -> int:
        configuration = scene.plane.inventory.loadables["m"].configuration
        assert configuration is not None
        return int(configuration.message.max_batch_size)

    assert scene.act(load(config=OTHER), size, load(), size) == [None, 8, None, 0]


def test_a_load_that_fails_says_why_and_a_failed_configuration_is_not_kept(scene: Managed) -> None:

    async def breaks(management: ManagementCommands) -> None:
        scene.triton.broken["m"] = TritonFailed("load failed for model 'm': no memory")

    first, second, _, third, fourth = scene.act(
        load("nothing"), load(config="{"), breaks, load(config=OTHER), load()
    )
    assert isinstance(first, NotInRepository)
    assert isinstance(second, UnreadableConfiguration)
    assert str(second).startswith(
        "failed to load 'm', failed to poll from model repository: the configuration cannot be read"
    )
    assert isinstance(third, LoadFailed)
    assert str(third) == str(fourth) == "load failed for model 'm': no memory"
    assert scene.plane.decisions.entry(SERVING, "m").body is None


OUTSIDE = {
    "cc_model_filenames": '{"cc_model_filenames": {"7.5": "/etc/passwd"}}',
    "default_model_filename": '{"default_model_filename": "../../m.onnx"}',
    "output.label_filename": '{"output": [{"name": "y", "label_filename": "../../etc/passwd"}]}',
    "model_warmup.inputs.input_data_file": """{"modelWarmup": [{"name": "w", "inputs":
        {"x": {"inputDataFile": "../../../../etc/passwd"}}}]}""",
}


def test_a_load_that_comes_while_another_runs_is_tried_by_itself(scene: Managed) -> None:
    """As after a configuration that failed, when the one before it is being loaded again."""
    begun, gone_on, loads = asyncio.Event(), asyncio.Event(), scene.triton.load

    async def slow(model: str, config: str | None) -> None:
        begun.set()
        await gone_on.wait()
        await loads(model, config)

    async def second(management: ManagementCommands) -> None:
        scene.triton.load = slow  # type: ignore[method-assign]
        scene.keeper.load_again("m")
        await begun.wait()  # the first is on its way
        scene.fleet.failures["a", "m"] = LoadFailure("an old one", (), 1, math.inf)
        loading = asyncio.create_task(management.load("m", OTHER, BY, PATIENCE))
        await until(lambda: not scene.fleet.failures)  # the second has been asked for
        scene.triton.load = fails  # type: ignore[method-assign]
        gone_on.set()
        await loading

    async def fails(model: str, config: str | None) -> None:
        for _ in range(2000):  # turns of the loop: others run meanwhile
            await asyncio.sleep(0)
        raise TritonFailed("load failed for model 'm': no memory")

    [said] = scene.act(second)
    assert isinstance(said, LoadFailed)


def test_a_configuration_that_is_none_of_this_model_is_refused_in_one_line(scene: Managed) -> None:
    wrong = ["", "[]", "{", '{"nothing": 1}', '{"name": "other"}']
    for said in scene.act(*(load(config=config) for config in wrong)):
        assert isinstance(said, UnreadableConfiguration)
        assert "\n" not in str(said)
    assert scene.triton.asked == ["load m"]  # which was before
    assert scene.plane.decisions.entry(SERVING, "m").body is None


def test_a_configuration_that_names_files_outside_the_model_is_never_loaded(
    scene: Managed,
) -> None:
    errors = scene.act(*(load(config=config) for config in OUTSIDE.values()))
    for field, error in zip(OUTSIDE, errors, strict=True):
        assert isinstance(error, UnreadableConfiguration)
        assert f"in '{field}' cannot be the path of a file of this model" in str(error)
    assert scene.triton.asked == ["load m"]
    assert scene.plane.decisions.entry(SERVING, "m").body is None


def test_an_ensemble_brings_its_parts_and_takes_them_along_when_asked(tmp_path: Path) -> None:
    scene = Managed(tmp_path)
    write_model(scene.repository, "part", 1)
    step = '{ model_name: "part" model_version: -1 }'
    config = f'platform: "ensemble"\nensemble_scheduling {{ step [ {step} ] }}\n'
    folder = write_model(scene.repository, "whole", 1)
    (folder / "config.pbtxt").write_text(config)

    async def held(management: ManagementCommands) -> list[str]:
        return sorted(scene.triton.held)

    whole = unload("whole", dependents=True)
    said = scene.act(unload("whole"), held, load("whole"), whole, held, load("whole"), held)
    assert said == [None, ["part"], None, None, [], None, ["part", "whole"]]


def test_settings_are_made_on_every_replica_and_made_again_on_one_that_was_lost(
    tmp_path: Path,
) -> None:
    scene = Managed(tmp_path)

    async def restart(management: ManagementCommands) -> object:
        scene.settings.clear()
        scene.triton.is_up = False
        await scene.round()
        scene.triton.is_up = True
        await scene.round()
        return dict(scene.settings)

    said = scene.act(
        change(TRACE, "m", trace_level=["TIMESTAMPS"]),
        change(LOGGING, log_verbose_level=1),
        change(LOGGING),
        restart,
    )
    assert said[:3] == [
        {"trace_level": ["TIMESTAMPS"]},
        {"log_verbose_level": 1},
        {"log_verbose_level": 1},
    ]
    assert said[3] == {
        (TRACE, "m"): {"trace_level": ["TIMESTAMPS"]},
        (LOGGING, ""): {"log_verbose_level": 1},
    }


def test_settings_that_are_refused_are_not_kept(tmp_path: Path) -> None:
    scene = Managed(tmp_path)
    scene.refused = "unknown setting"
    refused, unloaded = scene.act(change(LOGGING, x=1), unload("nothing"))
    assert (str(refused), unloaded) == ("unknown setting", None)
    assert scene.plane.decisions.entries == {}


def test_a_policy_under_which_there_is_no_version_is_refused(scene: Managed) -> None:
    config = OTHER.replace('"all": {}', '"specific": {"versions": [7]}')
    [said] = scene.act(load(config=config))
    assert isinstance(said, LoadFailed)
    assert "at least one version must be available under the version policy" in str(said)
    assert scene.plane.decisions.entry(SERVING, "m").body is None


def test_a_file_is_refused_behind_an_unknown_model(tmp_path: Path) -> None:
    scene = Managed(tmp_path)
    trace, log = scene.act(change(TRACE, trace_file="/x"), change(LOGGING, log_file="/x"))
    words = "file location can not be updated through network protocol"
    assert (str(trace), str(log)) == (f"trace {words}", f"log {words}")
    assert isinstance(trace, FixedSetting)
    scene.refused = "Request for unknown model : m"
    [unknown] = scene.act(change(TRACE, "m", trace_file="/x"))
    assert str(unknown) == "Request for unknown model : m"
    assert scene.plane.decisions.entries == {}


def test_without_a_repository_or_a_replica_nothing_can_be_loaded(tmp_path: Path) -> None:
    [said] = Managed(tmp_path, discovering=True).act(load())
    assert isinstance(said, ModelControlOff)
    scene = Managed(tmp_path)
    write_model(scene.repository)
    scene.triton.is_up = False
    [said] = scene.act(load())
    assert isinstance(said, Unavailable)


def test_what_takes_too_long_goes_on_and_says_so(scene: Managed) -> None:
    never = asyncio.Event()

    async def hang(model: str, config: str | None) -> None:
        await never.wait()

    async def command(management: ManagementCommands) -> None:
        scene.triton.load = hang  # type: ignore[method-assign]
        await management.load("m", None, BY, 0.05)

    [said] = scene.act(command)
    assert isinstance(said, DeadlineExceeded)


@pytest.mark.parametrize("more", ["max_batch_size: 4\n", ""])
def test_a_load_call_reads_the_folder_at_once(scene: Managed, more: str) -> None:
    folder = scene.repository / "m"

    async def edit(management: ManagementCommands) -> None:
        (folder / "3").mkdir()
        (folder / "config.pbtxt").write_text(CONFIG + more)

    assert scene.act(edit, load()) == [None, None]
    assert scene.triton.held == {"m": {1, 2, 3}}


def test_a_model_whose_folder_is_broken_cannot_be_loaded(scene: Managed) -> None:
    (scene.repository / "m" / "config.pbtxt").write_text("nonsense: {")
    [said] = scene.act(load())
    assert isinstance(said, UnreadableConfiguration)
    assert "config.pbtxt cannot be read" in str(said)
