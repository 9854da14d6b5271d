"""Management calls through the data ports, as Triton's own clients make them."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import harness
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shared_memory
from repositories import PLAIN, python_model
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.triton
PATIENCE = 20.0  # seconds; a bound
CLIENTS: dict[str, Any] = {
    "http": triton_http.InferenceServerClient,
    "grpc": triton_grpc.InferenceServerClient,
}
KINDS: dict[str, Any] = {"http": triton_http, "grpc": triton_grpc}


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Up]:
    """Two Tritons with one model, and management allowed."""
    home = tmp_path_factory.mktemp("managed")
    python_model(home / "models", "plain", PLAIN)
    flags = ("--allow-management", "--model-repo", str(home / "models"), "--replicas", "2")
    with harness.up(home / "state", *flags) as up:
        yield up


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Up]:
    """The same with one Triton."""
    home = tmp_path_factory.mktemp("alone")
    python_model(home / "models", "plain", PLAIN)
    flags = ("--allow-management", "--model-repo", str(home / "models"), "--replicas", "1")
    with harness.up(home / "state", *flags) as up:
        yield up


@contextlib.contextmanager
def client(up: harness.Up, protocol: str) -> Iterator[Any]:
    made = CLIENTS[protocol](up.http if protocol == "http" else up.grpc)
    with contextlib.closing(made):
        yield made


def states(up: harness.Up) -> dict[str, str]:
    """What each Triton itself says of the model."""
    said = {}
    for replica in up.get("/api/replicas"):
        host, http, *_ = replica["address"].split(":")
        body = harness.request(f"http://{host}:{http}/v2/repository/index", "POST", {})[1]
        said[replica["name"]] = next(one.get("state", "") for one in body if one["name"] == "plain")
    return said


def asks(protocol: str) -> list[Any]:
    x = KINDS[protocol].InferInput("x", [2], "FP32")
    x.set_data_from_numpy(np.array([1, 2], np.float32))
    return [x]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_load_and_unload_reach_every_replica_before_they_are_answered(
    managed: harness.Up, protocol: str
) -> None:
    with client(managed, protocol) as triton:
        triton.unload_model("plain")
        assert "READY" not in states(managed).values()
        assert not triton.is_model_ready("plain")
        assert managed.get("/api/models/plain")["state"] == "unloaded"
        with pytest.raises(InferenceServerException, match="unknown model"):
            triton.infer("plain", asks(protocol))
        triton.load_model("plain")
        assert set(states(managed).values()) == {"READY"}
        assert triton.is_model_ready("plain")
        assert list(triton.infer("plain", asks(protocol)).as_numpy("y")) == [1, 2]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_cannot_be_loaded_says_why(managed: harness.Up, protocol: str) -> None:
    with client(managed, protocol) as triton:
        with pytest.raises(InferenceServerException, match="failed to poll from model repository"):
            triton.load_model("nothing")
        with pytest.raises(InferenceServerException, match="load failed for model 'plain'"):
            triton.load_model("plain", config='{"backend": "nothing"}')
        with pytest.raises(InferenceServerException, match="not taken from a load call"):
            triton.load_model("plain", config="{}", files={"file:1/model.py": b"import os"})
        assert triton.is_model_ready("plain")
        triton.unload_model("nothing")


def test_a_configuration_holds_until_the_next_load(managed: harness.Up) -> None:
    with client(managed, "http") as triton:
        config = triton.get_model_config("plain")
        triton.load_model("plain", config=json.dumps(config | {"max_batch_size": 4}))
        assert triton.get_model_config("plain")["max_batch_size"] == 4
        triton.load_model("plain")
        assert triton.get_model_config("plain")["max_batch_size"] == 0


def test_log_and_trace_settings_hold_on_every_replica(managed: harness.Up) -> None:
    with client(managed, "grpc") as triton:
        told = triton.update_log_settings({"log_verbose_level": 1, "log_info": False}, as_json=True)
        assert told["settings"]["log_verbose_level"] == {"uint32_param": 1}
    for replica in managed.get("/api/replicas"):
        host, http, *_ = replica["address"].split(":")
        with triton_http.InferenceServerClient(f"{host}:{http}") as triton:
            assert triton.get_log_settings()["log_verbose_level"] == 1
    with client(managed, "http") as triton:
        assert triton.update_log_settings({"log_verbose_level": 0})["log_verbose_level"] == 0
        told = triton.update_trace_settings("plain", {"trace_rate": "9"})
        assert (told["trace_rate"], told["trace_level"]) == ("9", ["OFF"])
        assert triton.get_trace_settings("plain")["trace_rate"] == "9"
        with pytest.raises(
            InferenceServerException, match="trace file location can not be updated"
        ):
            triton.update_trace_settings(settings={"trace_file": "/tmp/trace"})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_shared_memory_is_not_for_a_fleet(managed: harness.Up, protocol: str) -> None:
    with (
        client(managed, protocol) as triton,
        pytest.raises(InferenceServerException, match="one local Triton only"),
    ):
        triton.register_system_shared_memory("r", "/nothing", 64)


def unregister(triton: Any) -> None:
    """Triton lets go of a region a moment after it has answered."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return triton.unregister_system_shared_memory("r")
        except InferenceServerException as error:
            assert "currently in use" in str(error) and time.monotonic() < end


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_shared_memory_works_in_front_of_one_local_triton(alone: harness.Up, protocol: str) -> None:
    with client(alone, protocol) as triton:
        name = f"/servegate_test_{alone.http_port}"
        region = shared_memory.create_shared_memory_region("r", name, 8)
        try:
            shared_memory.set_shared_memory_region(region, [np.array([3, 4], np.float32)])
            triton.register_system_shared_memory("r", name, 8)
            status = triton.get_system_shared_memory_status(
                **({"as_json": True} if protocol == "grpc" else {})
            )
            assert "r" in json.dumps(status)
            x = KINDS[protocol].InferInput("x", [2], "FP32")
            x.set_shared_memory("r", 8)
            assert list(triton.infer("plain", [x]).as_numpy("y")) == [3, 4]
            unregister(triton)
            with pytest.raises(InferenceServerException):
                triton.infer("plain", [x])
        finally:
            shared_memory.destroy_shared_memory_region(region)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_management_is_refused_unless_it_is_allowed(gateway: harness.Up, protocol: str) -> None:
    with (
        client(gateway, protocol) as triton,
        pytest.raises(InferenceServerException, match="model repository"),
    ):
        triton.load_model("digits")
