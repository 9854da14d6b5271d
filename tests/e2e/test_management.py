"""Management calls through the data ports, as Triton's own clients make them."""

import contextlib
import json
import time
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shared_memory
from guarding import Guarded
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.triton
PATIENCE = 20.0  # seconds; a bound
KINDS: dict[str, Any] = {"http": triton_http, "grpc": triton_grpc}


def secured(guarded: Guarded, protocol: str) -> Any:
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


@pytest.mark.parametrize("protocol", ["http", pytest.param("grpc", marks=pytest.mark.slow)])
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
