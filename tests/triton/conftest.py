"""A real Triton without the launcher of this project, for tests of what runs inside of it."""

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from harness import until
from ports import free_ports

from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Installation, MachineFacts

from .client_models import GONE, MODELS
from .fronting import Front, Model, front

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BareTriton:
    """A running tritonserver; models are loaded and unloaded by its clients."""

    http: str  # host:port
    grpc: str
    repository: Path
    log: Path
    process: subprocess.Popen[bytes]
    region: str  # what its shared memory is called


BareTritonFactory = Callable[..., BareTriton]


@pytest.fixture(scope="session")
def bare_triton_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareTritonFactory]:
    """`start(*flags)` starts a Triton on an empty model repository; all end with the session."""
    started: list[BareTriton] = []

    def start(*flags: str) -> BareTriton:
        started.append(launch(tmp_path_factory.mktemp("triton"), flags))
        wait_live(started[-1])
        return started[-1]

    yield start
    for server in started:
        stop(server)


@dataclass(frozen=True, slots=True)
class Beside:
    """A Triton that holds `client_models.MODELS`, and a gateway in front of it."""

    triton: BareTriton
    front: Front

    @property
    def http(self) -> tuple[str, str]:
        """Where HTTP clients ask: Triton itself, then the gateway."""
        return self.triton.http, self.front.http

    @property
    def grpc(self) -> tuple[str, str]:
        """The same for gRPC."""
        return self.triton.grpc, self.front.grpc


@pytest.fixture(scope="session")
def beside(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Beside]:
    """One for all tests of clients."""
    triton = bare_triton_factory()
    hold(triton, MODELS)
    with front(tmp_path_factory.mktemp("front"), [triton], MODELS) as running:
        yield Beside(triton, running)


def hold(server: BareTriton, models: Sequence[Model]) -> None:
    """Write these models into the repository and load them; `GONE` is unloaded again."""
    for model in models:
        model.write(server.repository)
    with ThreadPoolExecutor(4) as several:
        list(several.map(partial(load, server), [model.name for model in models]))
    if GONE in models:
        _post(server, f"models/{GONE.name}/unload")
        until(lambda: b'"reason":"unloaded"' in _post(server, "index"))


def load(server: BareTriton, model: str) -> None:
    """Load a model that lies in the repository."""
    _post(server, f"models/{model}/load")


def _post(server: BareTriton, path: str) -> bytes:
    asked = urllib.request.Request(f"http://{server.http}/v2/repository/{path}", b"{}")
    try:
        with urllib.request.urlopen(asked, timeout=START_SECONDS) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path}: {error.read().decode()}") from error


def launch(home: Path, flags: tuple[str, ...]) -> BareTriton:
    http, grpc = free_ports(2)
    repository, log = home / "models", home / "triton.log"
    repository.mkdir()
    region = f"test_{uuid.uuid4().hex}_"
    installation = Installation.find(MachineFacts.here())
    command = [
        str(installation.binary),
        f"--model-repository={repository}",
        "--model-control-mode=explicit",
        f"--backend-directory={build_backend_directory(installation, home)}",
        f"--backend-config=python,shm-region-prefix-name={region}",
        f"--http-port={http}",
        f"--grpc-port={grpc}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--exit-timeout-secs=5",
        "--allow-metrics=false",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        *flags,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=installation.environment(os.environ),
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    return BareTriton(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", repository, log, process, region)


def wait_live(server: BareTriton) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"http://{server.http}/v2/health/live", timeout=5).close()
            return
        time.sleep(0.02)
    stop(server)
    raise RuntimeError(f"Triton does not answer:\n{server.log.read_text()[-4000:]}")


def stop(server: BareTriton) -> None:
    """End the server and its Python processes, and remove the shared memory that is left.

    Nobody waits for models to unload, which takes many seconds.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    for left in Path("/dev/shm").glob(f"{server.region}*"):
        left.unlink(missing_ok=True)
