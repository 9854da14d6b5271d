"""A hint tells what a dcgm-exporter beside a Triton says of its GPUs: a real gateway, no GPU."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import harness
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
LABELS = 'gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node"'
TEXT = f"""\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 61
# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{{{LABELS}}} 0.412706
"""


class Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Where an exporter answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_hint_tells_the_gpus_of_its_pool_and_their_mean(tmp_path, port: int) -> None:
    url = f"default=http://{{host}}:{port}/metrics"
    with harness.up(tmp_path, "--gpu-metrics", url) as up:
        hint = harness.until(
            lambda: next((one for one in up.get("/api/hints")["hints"] if one["gpus"]), None),
            what="GPUs in a hint",
        )
    assert list(hint["gpus"]) == ["local-0/GPU-1"]
    told = hint["gpus"]["local-0/GPU-1"]
    assert (told["source"], told["utilization"], told["sm_active"]) == ("dcgm", 0.61, 0.412706)
    assert hint["utilization"] == 0.61
