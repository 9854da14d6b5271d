"""Management calls: what they decide, when they are done, and what is left when they fail."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
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

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator["Managed"]:
        """The keeper has looked once, and runs."""
        await self.round()
        keeping = asyncio.create_task(self.keeper.run())
        try:
            async with asyncio.timeout(PATIENCE):
                yield self
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def load(self, name: str = "m", config: str | None = None) -> None:
        await self.management.load(name, config, BY, PATIENCE)

    async def unload(self, name: str = "m", **options: bool) -> None:
        await self.management.unload(name, BY, PATIENCE, **options)

    async def change(self, kind: str, model: str = "", **settings: Any) -> Settings:
        return await self.management.change(kind, model, settings, BY, PATIENCE)

    @property
    def decided(self) -> object:
        """What was decided about serving model m."""
        return self.plane.decisions.entry(SERVING, "m").body


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Managed]:
    """Versions 1 and 2 of model m are in the folder."""
    scene = Managed(tmp_path)
    write_model(scene.repository)
    async with scene.kept():
        yield scene


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Managed]:
    """Nothing is in the folder."""
    async with Managed(tmp_path).kept() as scene:
        yield scene


async def test_a_load_call_loads_anew_what_is_loaded(scene: Managed) -> None:
    await scene.load()
    assert scene.triton.asked == ["load m", "load m"]


async def test_an_unloaded_model_stays_unloaded_until_it_is_loaded(scene: Managed) -> None:
    await scene.unload()
    await scene.round()
    assert (scene.triton.held, scene.targets()) == ({}, {})
    assert scene.plane.models.get("m").state == "unloaded"
    await scene.load()
    assert (scene.triton.held, set(scene.targets())) == ({"m": {1, 2}}, {1, 2})
    assert scene.plane.models.get("m").state == "ready"


async def test_a_configuration_stands_for_the_one_on_disk_until_the_next_plain_load(
    scene: Managed,
) -> None:
    for config, size in ((OTHER, 8), (None, 0)):
        await scene.load(config=config)
        configuration = scene.plane.inventory.loadables["m"].configuration
        assert configuration is not None
        assert configuration.message.max_batch_size == size


async def test_a_load_that_fails_says_why_and_a_failed_configuration_is_not_kept(
    scene: Managed,
) -> None:
    with pytest.raises(NotInRepository):
        await scene.load("nothing")
    scene.triton.broken["m"] = TritonFailed("load failed for model 'm': no memory")
    for config in (OTHER, None):
        with pytest.raises(LoadFailed, match=r"^load failed for model 'm': no memory$"):
            await scene.load(config=config)
    policy = OTHER.replace('"all": {}', '"specific": {"versions": [7]}')
    with pytest.raises(LoadFailed, match="at least one version must be available under the"):
        await scene.load(config=policy)
    assert scene.decided is None


OUTSIDE = {
    "cc_model_filenames": '{"cc_model_filenames": {"7.5": "/etc/passwd"}}',
    "default_model_filename": '{"default_model_filename": "../../m.onnx"}',
    "output.label_filename": '{"output": [{"name": "y", "label_filename": "../../etc/passwd"}]}',
    "model_warmup.inputs.input_data_file": """{"modelWarmup": [{"name": "w", "inputs":
        {"x": {"inputDataFile": "../../../../etc/passwd"}}}]}""",
}


async def test_a_configuration_that_cannot_be_of_this_model_is_never_loaded(scene: Managed) -> None:
    start = "failed to load 'm', failed to poll from model repository: the configuration "
    for config in ("", "[]", "{", '{"nothing": 1}', '{"name": "other"}'):
        with pytest.raises(UnreadableConfiguration) as caught:
            await scene.load(config=config)
        assert str(caught.value).startswith(start) and "\n" not in str(caught.value)
    for field, config in OUTSIDE.items():
        with pytest.raises(UnreadableConfiguration) as caught:
            await scene.load(config=config)
        assert f"in '{field}' cannot be the path of a file of this model" in str(caught.value)
    assert scene.triton.asked == ["load m"]  # which was before
    assert scene.decided is None


async def test_a_load_that_comes_while_another_runs_is_tried_by_itself(scene: Managed) -> None:
    """As after a configuration that failed, when the one before it is being loaded again."""
    begun, gone_on, loads = asyncio.Event(), asyncio.Event(), scene.triton.load

    async def slow(model: str, config: str | None) -> None:
        begun.set()
        await gone_on.wait()
        await loads(model, config)

    async def fails(model: str, config: str | None) -> None:
        for _ in range(2000):  # turns of the loop: others run meanwhile
            await asyncio.sleep(0)
        raise TritonFailed("load failed for model 'm': no memory")

    scene.triton.load = slow  # type: ignore[method-assign]
    scene.keeper.load_again("m")
    await begun.wait()  # the first is on its way
    scene.fleet.failures["a", "m"] = LoadFailure("an old one", (), 1, math.inf)
    loading = asyncio.create_task(scene.load(config=OTHER))
    await until(lambda: not scene.fleet.failures)  # the second has been asked for
    scene.triton.load = fails  # type: ignore[method-assign]
    gone_on.set()
    with pytest.raises(LoadFailed):
        await loading


async def test_an_ensemble_brings_its_parts_and_takes_them_along_when_asked(empty: Managed) -> None:
    write_model(empty.repository, "part", 1)
    step = '{ model_name: "part" model_version: -1 }'
    config = f'platform: "ensemble"\nensemble_scheduling {{ step [ {step} ] }}\n'
    write_model(empty.repository, "whole", 1, config=config)
    await empty.load("whole")
    await empty.unload("whole")
    assert set(empty.triton.held) == {"part"}
    await empty.load("whole")
    await empty.unload("whole", dependents=True)
    assert empty.triton.held == {}
    await empty.load("whole")
    assert set(empty.triton.held) == {"part", "whole"}


async def test_settings_are_made_on_every_replica_and_made_again_on_one_that_was_lost(
    empty: Managed,
) -> None:
    trace, log = {"trace_level": ["TIMESTAMPS"]}, {"log_verbose_level": 1}
    assert await empty.change(TRACE, "m", **trace) == trace
    assert await empty.change(LOGGING, **log) == log
    assert await empty.change(LOGGING) == log
    empty.settings.clear()
    for is_up in (False, True):
        empty.triton.is_up = is_up
        await empty.round()
    assert empty.settings == {(TRACE, "m"): trace, (LOGGING, ""): log}


async def test_settings_that_are_refused_or_name_files_are_not_kept(empty: Managed) -> None:
    for kind, name in ((TRACE, "trace"), (LOGGING, "log")):
        words = f"^{name} file location can not be updated through network protocol$"
        with pytest.raises(FixedSetting, match=words):
            await empty.change(kind, **{f"{name}_file": "/x"})
    for refused, model, settings in (
        ("unknown setting", "", {"x": 1}),
        ("Request for unknown model : m", "m", {"trace_file": "/x"}),  # which is told first
    ):
        empty.refused = refused
        with pytest.raises(TritonFailed, match=f"^{refused}$"):
            await empty.change(TRACE, model, **settings)
    await empty.unload("nothing")  # which is unloaded already
    assert empty.plane.decisions.entries == {}


async def test_without_a_repository_or_a_replica_nothing_can_be_loaded(
    scene: Managed, tmp_path: Path
) -> None:
    scene.triton.is_up = False
    await scene.round()
    with pytest.raises(Unavailable):
        await scene.load()
    (tmp_path / "other").mkdir()
    async with Managed(tmp_path / "other", discovering=True).kept() as other:
        with pytest.raises(ModelControlOff):
            await other.load()


async def test_what_takes_too_long_goes_on_and_says_so(scene: Managed) -> None:
    async def hang(model: str, config: str | None) -> None:
        await asyncio.Event().wait()

    scene.triton.load = hang  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceeded):
        await scene.management.load("m", None, BY, 0.05)


@pytest.mark.parametrize("more", ["max_batch_size: 4\n", ""])
async def test_a_load_call_reads_the_folder_at_once(scene: Managed, more: str) -> None:
    (scene.repository / "m" / "3").mkdir()
    (scene.repository / "m" / "config.pbtxt").write_text(CONFIG + more)
    await scene.load()
    assert scene.triton.held == {"m": {1, 2, 3}}


async def test_a_model_whose_folder_is_broken_cannot_be_loaded(empty: Managed) -> None:
    write_model(empty.repository, config="nonsense: {")
    with pytest.raises(UnreadableConfiguration, match=r"config\.pbtxt cannot be read"):
        await empty.load()
