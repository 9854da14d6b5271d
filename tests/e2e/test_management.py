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
from guarding import Guarded
from repositories import PLAIN, python_model, serve
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.triton
PATIENCE = 20.0  # seconds; a bound
CLIENTS: dict[str, Any] = {
    "http": triton_http.InferenceServerClient,
    "grpc": triton_grpc.InferenceServerClient,
}
MODEL = "managed"
FILES = {"file:1/model.py": b"import os"}
KINDS: dict[str, Any] = {"http": triton_http, "grpc": triton_grpc}


@pytest.fixture(scope="module")
def managed(
    gateway: harness.RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> harness.RunningGateway:
    """Two Tritons with a model of these tests, and management allowed."""
    home = tmp_path_factory.mktemp("managed")
    python_model(home, MODEL, PLAIN)
    serve(gateway, home)
    return gateway


@contextlib.contextmanager
def client(up: harness.RunningGateway, protocol: str) -> Iterator[Any]:
    made = CLIENTS[protocol](up.http if protocol == "http" else up.grpc)
    with contextlib.closing(made):
        yield made


def states(up: harness.RunningGateway) -> dict[str, str]:
    """What each Triton itself says of the model."""
    said = {}
    for replica in up.get("/api/replicas"):
        host, http, *_ = replica["address"].split(":")
        body = harness.request(f"http://{host}:{http}/v2/repository/index", "POST", {})[1]
        said[replica["name"]] = next(one.get("state", "") for one in body if one["name"] == MODEL)
    return said


def asks(protocol: str) -> list[Any]:
    x = KINDS[protocol].InferInput("x", [2], "FP32")
    x.set_data_from_numpy(np.array([1, 2], np.float32))
    return [x]


@pytest.mark.parametrize("protocol", ["http", pytest.param("grpc", marks=pytest.mark.slow)])
def test_load_and_unload_reach_every_replica_and_what_cannot_be_loaded_says_why(
    managed: harness.RunningGateway, protocol: str
) -> None:
    with client(managed, protocol) as triton:
        triton.unload_model(MODEL)
        assert "READY" not in states(managed).values()
        assert not triton.is_model_ready(MODEL)
        assert managed.get(f"/api/models/{MODEL}")["state"] == "unloaded"
        with pytest.raises(InferenceServerException, match="unknown model"):
            triton.infer(MODEL, asks(protocol))
        triton.load_model(MODEL)
        assert set(states(managed).values()) == {"READY"}
        assert triton.is_model_ready(MODEL)
        assert list(triton.infer(MODEL, asks(protocol)).as_numpy("y")) == [1, 2]
        for name, asked, words in (
            ("nothing", {}, "failed to poll from model repository"),
            (MODEL, {"config": '{"backend": "nothing"}'}, f"load failed for model '{MODEL}'"),
            (MODEL, {"config": "{}", "files": FILES}, "must not contain model files"),
        ):
            with pytest.raises(InferenceServerException, match=words):
                triton.load_model(name, **asked)
        assert triton.is_model_ready(MODEL)
        triton.unload_model("nothing")


@pytest.mark.slow
def test_a_configuration_holds_until_the_next_load(managed: harness.RunningGateway) -> None:
    with client(managed, "http") as triton:
        config = triton.get_model_config(MODEL)
        triton.load_model(MODEL, config=json.dumps(config | {"max_batch_size": 4}))
        assert triton.get_model_config(MODEL)["max_batch_size"] == 4
        triton.load_model(MODEL)
        assert triton.get_model_config(MODEL)["max_batch_size"] == 0


@pytest.mark.slow
def test_log_and_trace_settings_hold_on_every_replica(managed: harness.RunningGateway) -> None:
    with client(managed, "grpc") as triton:
        told = triton.update_log_settings({"log_verbose_level": 1, "log_info": False}, as_json=True)
        assert told["settings"]["log_verbose_level"] == {"uint32_param": 1}
    for replica in managed.get("/api/replicas"):
        host, http, *_ = replica["address"].split(":")
        with triton_http.InferenceServerClient(f"{host}:{http}") as triton:
            assert triton.get_log_settings()["log_verbose_level"] == 1
    with client(managed, "http") as triton:
        assert triton.update_log_settings({"log_verbose_level": 0})["log_verbose_level"] == 0
        told = triton.update_trace_settings(MODEL, {"trace_rate": "9"})
        assert (told["trace_rate"], told["trace_level"]) == ("9", ["OFF"])
        assert triton.get_trace_settings(MODEL)["trace_rate"] == "9"
        with pytest.raises(
            InferenceServerException, match="trace file location can not be updated"
        ):
            triton.update_trace_settings(settings={"trace_file": "/tmp/trace"})


@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_fleet_has_no_shared_memory_and_management_is_refused_unless_it_is_allowed(
    managed: harness.RunningGateway, uploading: harness.RunningGateway, protocol: str
) -> None:
    with (
        client(managed, protocol) as triton,
        pytest.raises(InferenceServerException, match="a single local Triton"),
    ):
        triton.register_system_shared_memory("r", "/nothing", 64)
    with (
        client(uploading, protocol) as triton,
        pytest.raises(InferenceServerException, match="model repository"),
    ):
        triton.load_model("mixed")


def secured(guarded: Guarded, protocol: str) -> Any:
    """Triton's client of the gateway with keys."""
    ca = str(guarded.authority)
    if protocol == "http":
        url, options = f"localhost:{guarded.up.http_port}", {"ca_certs": ca}
        return triton_http.InferenceServerClient(url, ssl=True, ssl_options=options)
    url = f"localhost:{guarded.up.grpc_port}"
    return triton_grpc.InferenceServerClient(url, ssl=True, root_certificates=ca)


def unregister(triton: Any, region: str, **shown: Any) -> None:
    """Triton lets go of a region a moment after it has answered."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return triton.unregister_system_shared_memory(region, **shown)
        except InferenceServerException as error:
            assert "currently in use" in str(error) and time.monotonic() < end


@pytest.mark.parametrize("protocol", CLIENTS)
def test_an_admin_key_uses_shared_memory_in_front_of_one_local_triton(
    guarded: Guarded, protocol: str
) -> None:
    shown = {"headers": {"authorization": f"Bearer {guarded.keys['admin']}"}}
    with contextlib.closing(secured(guarded, protocol)) as triton:
        name = f"/servegate_test_{guarded.up.http_port}"
        region = shared_memory.create_shared_memory_region("r", name, 256)
        try:
            row = np.zeros((1, 8, 8, 1), np.float32)
            shared_memory.set_shared_memory_region(region, [row])
            triton.register_system_shared_memory("r", name, 256, **shown)
            as_json = {"as_json": True} if protocol == "grpc" else {}
            assert "r" in json.dumps(triton.get_system_shared_memory_status(**as_json, **shown))
            x = KINDS[protocol].InferInput("x", row.shape, "FP32")
            x.set_shared_memory("r", 256)
            answer = triton.infer("digits", [x], **shown).as_numpy("probabilities")
            assert answer.shape == (1, 10)
            unregister(triton, "r", **shown)
            with pytest.raises(InferenceServerException):
                triton.infer("digits", [x], **shown)
        finally:
            shared_memory.destroy_shared_memory_region(region)
