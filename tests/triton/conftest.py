"""A real Triton without the launcher of this project, for tests of what runs inside of it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from ports import free_ports

from .client_models import MODELS
from .fronting import Front, front

BACKENDS = Path(__file__).parents[2] / "serve" / "triton" / "backends"
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
    if find_spec("pytriton") is None:
        pytest.fail("nvidia-pytriton is not installed: make deps-dev")
    started: list[BareTriton] = []

    def start(*flags: str) -> BareTriton:
        home = tmp_path_factory.mktemp("triton")
        started.append(launch(home, flags))
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
    for model in MODELS:
        model.write(triton.repository)
        load(triton, model.name)
    with front(tmp_path_factory.mktemp("front"), [triton], MODELS) as running:
        yield Beside(triton, running)


def load(server: BareTriton, model: str) -> None:
    """Load a model that lies in the repository."""
    address = f"http://{server.http}/v2/repository/models/{model}/load"
    asked = urllib.request.Request(address, b"{}", method="POST")
    try:
        urllib.request.urlopen(asked, timeout=START_SECONDS).close()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{model} cannot be loaded: {error.read().decode()}") from error


def launch(home: Path, flags: tuple[str, ...]) -> BareTriton:
    http, grpc = free_ports(2)
    repository, log = home / "models", home / "triton.log"
    repository.mkdir()
    region = f"test_{uuid.uuid4().hex}_"
    server = site_packages() / "pytriton" / "tritonserver"
    command = [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        "--model-control-mode=explicit",
        f"--backend-directory={backend_directory(home, server)}",
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
            env=environment(),
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


def backend_directory(home: Path, server: Path) -> Path:
    """The wheel's Python backend with the stub of this Python, and the backends of this project."""
    backends = home / "backends"
    shutil.copytree(server / "backends" / "python", backends / "python")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = "triton_python_backend_stub"
    shutil.copy(server / "python_backend_stubs" / version / stub, backends / "python" / stub)
    (backends / "python" / stub).chmod(0o755)
    shutil.copytree(BACKENDS / "onnxruntime", backends / "onnxruntime")
    return backends


def environment() -> dict[str, str]:
    """The stub takes its packages from the first python3 on PATH, and libpython from here."""
    libraries = [
        str(site_packages() / "nvidia_pytriton.libs"),
        sysconfig.get_config_var("LIBDIR"),
        str(Path(sys.base_prefix) / "lib"),
    ]
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return os.environ | {"LD_LIBRARY_PATH": ":".join(libraries), "PATH": ":".join(path)}


def site_packages() -> Path:
    return Path(sysconfig.get_path("purelib"))
