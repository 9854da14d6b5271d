"""What NVIDIA's clients hear of a fleet as a whole: one server, with the counts of all replicas."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from harness import until

from .client_models import TOLD
from .conftest import BareTriton, BareTritonFactory, load
from .fronting import Front, front

pytestmark = pytest.mark.triton

CALLS = 10
BOTH = pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two Tritons with one model, and a gateway in front of both."""

    tritons: tuple[BareTriton, BareTriton]
    front: Front

    def addresses(self, module: ModuleType) -> tuple[str, tuple[str, ...]]:
        """Of the gateway, and of each Triton."""
        name = "http" if module is http else "grpc"
        return getattr(self.front, name), tuple(getattr(one, name) for one in self.tritons)


@pytest.fixture(scope="module")
def fleet(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    tritons = (bare_triton_factory(), bare_triton_factory())
    for triton in tritons:
        TOLD.write(triton.repository)
        load(triton, TOLD.name)
    with front(tmp_path_factory.mktemp("front"), tritons, [TOLD]) as running:
        yield Fleet(tritons, running)


def call(client: Any, module: ModuleType, times: int) -> None:
    tensor = module.InferInput("x", [1], "FP32")
    tensor.set_data_from_numpy(np.array([1], np.float32))
    for _ in range(times):
        client.infer("told", [tensor], model_version="1")


def counted(client: Any) -> int:
    """How many calls of version 1 have gone well."""
    said = client.get_inference_statistics("told", "1")
    if isinstance(said, dict):
        return int(said["model_stats"][0]["inference_stats"]["success"]["count"])
    return int(said.model_stats[0].inference_stats.success.count)


def counted_by(module: ModuleType, address: str) -> int:
    with module.InferenceServerClient(address) as client:
        return counted(client)


@BOTH
def test_statistics_are_the_sums_of_all_replicas(fleet: Fleet, module: ModuleType) -> None:
    """Triton counts a call a moment after it has answered."""
    front, tritons = fleet.addresses(module)
    before = [counted_by(module, address) for address in tritons]
    with module.InferenceServerClient(front) as client:
        assert counted(client) == sum(before)
        call(client, module, CALLS)
        until(lambda: counted(client) == sum(before) + CALLS)
    after = [counted_by(module, address) for address in tritons]
    assert sum(after) == sum(before) + CALLS
    assert all(now > then for now, then in zip(after, before, strict=True))


@BOTH
def test_the_index_and_the_statistics_name_each_version_once(
    fleet: Fleet, module: ModuleType
) -> None:
    front, (alone, _) = fleet.addresses(module)
    said = []
    for address in (front, alone):
        with module.InferenceServerClient(address) as client:
            index = client.get_model_repository_index()
            statistics = client.get_inference_statistics()
        if module is grpc:
            models = [(one.name, one.version, one.state) for one in index.models]
            versions = [(one.name, one.version) for one in statistics.model_stats]
        else:
            models = [(one["name"], one["version"], one["state"]) for one in index]
            versions = [(one["name"], one["version"]) for one in statistics["model_stats"]]
        said.append((sorted(models), sorted(versions)))
    assert said[0] == said[1]
    assert said[0][1] == [("told", "1"), ("told", "2")]


@BOTH
def test_questions_about_one_model_have_the_answer_of_one_triton(
    fleet: Fleet, module: ModuleType
) -> None:
    front, (alone, _) = fleet.addresses(module)
    said = []
    for address in (front, alone):
        with module.InferenceServerClient(address) as client:
            said.append(
                (
                    client.get_server_metadata(),
                    client.get_model_metadata("told"),
                    client.get_model_config("told"),
                    client.is_model_ready("told", "2"),
                )
            )
    assert said[0] == said[1]
