"""What was delivered is what a real Triton serves: from a folder, and from a bucket."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from control.delivering_scene import publish
from object_store import ObjectStore
from triton.onnx_models import config, node, onnx_file, tensor

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.bucket import BucketDelivery
from serve.control.deliveries.delivery import Delivery
from serve.control.deliveries.folder import FolderDelivery
from serve.control.versions import PublishedVersion
from serve.core.replicas import Replica
from serve.processes import Ledger
from serve.triton import config as triton_config
from serve.triton.control import TritonControl
from serve.triton.direct_prediction import predict
from serve.triton.installation import Installation, MachineFacts
from serve.triton.launcher import Launcher
from serve.triton.repository_url import triton_url

pytestmark = [pytest.mark.triton, pytest.mark.slow]
CONFIG = config("x FP32 [2]", "y FP32 [2]")


def model(operator: str) -> dict[str, bytes]:
    x, y = tensor("x", "FP32", "n", 2), tensor("y", "FP32", "n", 2)
    return {"model.onnx": onnx_file([x], [y], node(operator, "x", "y"))}


class Told(logging.Handler):
    """What Triton logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def starts(self, name: str) -> int:
        """How many instances of a model were started; each version has one."""
        return sum(f"ModelInstanceInitialize: {name}_0_0" in line for line in self.lines)


class Scene:
    """One Triton that reads from two places."""

    def __init__(self, replica: Replica, told: Told) -> None:
        self.told = told
        self._replica = replica
        self._control = TritonControl(replica, timeout=30)

    async def load(self, name: str, *versions: int) -> None:
        await self._control.load(name, triton_config.parse(CONFIG).for_load(versions))

    async def answer(self, name: str, version: int) -> list[float]:
        inputs = {"x": np.array([[1, 2]], np.float32)}
        outputs = await predict(self._replica, name, version, inputs, timeout=30)
        return [float(number) for number in outputs["y"][0]]

    async def indexed(self) -> set[str]:
        return {entry.model for entry in await self._control.index()}

    async def close(self) -> None:
        await self._control.close()


@asynccontextmanager
async def triton(
    folder: Path, repositories: list[str], environment: dict[str, str]
) -> AsyncIterator[Scene]:
    told = Told()
    logger = logging.Logger("servegate.triton")
    logger.addHandler(told)
    launcher = Launcher(
        1,
        repositories,
        state=folder / "state",
        installation=Installation.find(MachineFacts.here()),
        ledger=Ledger(folder / "state" / "children.json"),
        logger=logger,
        environ=environment,
        drain=1,
    )
    async with launcher:
        await launcher.wait_ready()
        scene = Scene(launcher.replicas[0], told)
        try:
            yield scene
        finally:
            await scene.close()


async def serves(
    scene: Scene, delivery: Delivery, one: PublishedVersion, two: PublishedVersion
) -> None:
    """The first version comes and answers, then the second, without a new start of the first."""
    name = one.physical
    await delivery.deliver([one], ())
    assert delivery.has("local-0", one)
    await scene.load(name, 1)
    assert await scene.answer(name, 1) == [1, 2]
    await delivery.deliver([one, two], [(name, 1)])
    await scene.load(name, 1, 2)
    assert await scene.answer(name, 2) == [-1, -2]
    assert await scene.answer(name, 1) == [1, 2]
    assert scene.told.starts(name) == 2
    await delivery.deliver([two], [(name, 2)])
    await scene.load(name, 2)
    assert await scene.answer(name, 2) == [-1, -2]
    assert scene.told.starts(name) == 2


def test_a_triton_serves_versions_from_a_folder_and_from_a_bucket(
    s3: ObjectStore, tmp_path: Path
) -> None:
    async def scenario() -> None:
        url, folder = s3.bucket(), tmp_path / "repository"
        environment = {**os.environ, **s3.environment}
        bucket, disk = (
            ArtifactStorage.of(url, **s3.config),
            ArtifactStorage.of(str(tmp_path / "storage")),
        )
        folder.mkdir()
        deliveries = (
            ("a", disk, FolderDelivery(disk, folder)),
            ("b", bucket, BucketDelivery(bucket, url, **s3.config)),
        )
        await deliveries[1][2].prepare()
        repositories = [str(folder), triton_url(url, environment)]
        async with asyncio.timeout(120), triton(tmp_path, repositories, environment) as scene:
            for name, storage, delivery in deliveries:
                made = [
                    await publish(storage, name, number, files=model(operator), config=CONFIG)
                    for number, operator in ((1, "Identity"), (2, "Neg"))
                ]
                await serves(scene, delivery, *made)
            assert await scene.indexed() == {"a", "b"}

    asyncio.run(scenario())
