"""The upstreams: two real Tritons with a backend that does nothing, and cheap ones beside them.

Where a cheap upstream takes the calls, the Tritons are still there: the control plane asks them
what they hold. A replica's address is put together from both.
"""

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtests.bench.filling import fill, nginx_user
from loadtests.bench.machine import Cores
from loadtests.bench.payloads import grpc_answer
from loadtests.bench.start import free_ports
from loadtests.bench.started import Programs, listening
from serve.triton.installation import Installation, MachineFacts

NATIVE = Path(__file__).parent / "native"
REPLICAS = 2
VERSIONS = (1, 2)  # of "null"
CONFIG = """name: "{name}"
backend: "null"
max_batch_size: 0
version_policy {{ all {{ }} }}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1, -1 ] }} ]
instance_group [ {{ count: 2 kind: KIND_CPU }} ]
"""


@dataclass(frozen=True, slots=True)
class Upstreams:
    """One set of replicas: the ports of each protocol, in the order of the replicas."""

    name: str  # "cheap" or "triton"
    http: tuple[int, ...]
    grpc: tuple[int, ...]
    metrics: tuple[int, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Each replica as `servegate --triton` takes it."""
        ports = zip(self.http, self.grpc, self.metrics, strict=True)
        return tuple(f"127.0.0.1:{http}:{grpc}:{metrics}" for http, grpc, metrics in ports)


def start_tritons(programs: Programs, *, cores: Cores, folder: Path) -> Upstreams:
    """Start both and wait until they hold the models `null` (two versions) and `echo`."""
    installation = Installation.find(MachineFacts.here())
    environment = installation.environment(os.environ)
    repository, backends = _repository(folder), _backends(folder)
    processes, replicas = [], []
    for number in range(REPLICAS):
        http, grpc, metrics = free_ports(3)
        argv = (
            *(*cores.upstream, str(installation.binary), f"--model-repository={repository}"),
            *(f"--backend-directory={backends}", f"--id=bench-{number}"),
            *(f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"),
            *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1"),
            *("--metrics-address=127.0.0.1", "--log-info=false", "--exit-timeout-secs=3"),
            *("--allow-sagemaker=false", "--allow-vertex-ai=false"),
        )
        processes.append(programs.start(f"triton-{number}", argv, environment))
        replicas.append((http, grpc, metrics))
    for number, (process, (http, _, _)) in enumerate(zip(processes, replicas, strict=True)):
        programs.wait(f"triton-{number}", process, partial(_is_ready, http))
    columns = list(zip(*replicas, strict=True))
    return Upstreams("triton", columns[0], columns[1], columns[2])


def start_cheap(programs: Programs, tritons: Upstreams, *, cores: Cores, folder: Path) -> Upstreams:
    """Start the cheap upstreams; their control methods are answered by the Tritons."""
    http, grpc = tuple(free_ports(REPLICAS)), tuple(free_ports(REPLICAS))
    binary = compile_native("http_upstream.c", folder / "http_upstream")
    process = programs.start("http-upstream", (*cores.upstream, str(binary), *map(str, http)))
    programs.wait("http-upstream", process, partial(listening, *http))
    own = folder / "grpc-upstream"
    configuration = _grpc_upstream(own, dict(zip(grpc, tritons.grpc, strict=True)))
    argv = (*cores.upstream, shutil.which("nginx") or "nginx", "-c", str(configuration))
    process = programs.start("grpc-upstream", argv)
    programs.wait("grpc-upstream", process, partial(listening, *grpc))
    return Upstreams("cheap", http, grpc, tritons.metrics)


def compile_native(source: str, target: Path, *more: str) -> Path:
    """Compile one of our C files."""
    command = ["gcc", "-O2", "-Wall", *more, "-o", str(target), str(NATIVE / source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{source} does not compile:\n{done.stderr}")
    return target


def _backends(folder: Path) -> Path:
    home = folder / "backends" / "null"
    home.mkdir(parents=True)
    compile_native("null_backend.c", home / "libtriton_null.so", "-shared", "-fPIC")
    return home.parent


def _repository(folder: Path) -> Path:
    home = folder / "repository"
    for name, versions in (("null", VERSIONS), ("echo", (1,))):
        for version in versions:
            (home / name / str(version)).mkdir(parents=True)
        (home / name / "config.pbtxt").write_text(CONFIG.format(name=name))
    return home


def _grpc_upstream(folder: Path, tritons: dict[int, int]) -> Path:
    folder.mkdir()
    (folder / "answer.grpc").write_bytes(grpc_answer())
    servers = [
        fill("grpc_upstream_server.conf", port=port, triton_port=triton, folder=folder)
        for port, triton in tritons.items()
    ]
    path = folder / "upstream.conf"
    whole = fill("grpc_upstream.conf", folder=folder, user=nginx_user(), servers="".join(servers))
    path.write_text(whole)
    return path


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/v2/health/ready", timeout=2
        ) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
