"""What manifests say, run as processes of this machine: the overlay `try`, KServe's `routing`.

Real are the programs, their arguments, settings and probes as rendered, and Triton. Not the
addresses and ports, and the API server is ours. What KServe would do is done by hand: models lie in
a folder, and Triton starts with it.
"""

import contextlib
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import announcing
import fleets
import harness
import pytest
from ports import free_ports

from k8s.rendering import Object, Rendering
from serve.triton.local_triton import LauncherSetup

pytestmark = pytest.mark.triton
POD = "triton-default-6d5f"


class Tried:
    """Control plane, gateway and sync agent as the Deployments start them."""

    def __init__(
        self,
        objects: tuple[Object, ...],
        discover: str,
        folder: Path,
        machine: fleets.Machine,
    ) -> None:
        self._pods = {
            each["metadata"]["name"]: each["spec"]["template"]["spec"]
            for each in objects
            if each["kind"] == "Deployment"
        }
        self._settings = _named(objects, "ConfigMap", "servegate")["data"]
        self._folder = folder
        self._machine = machine
        names = ("http", "grpc", "metrics", "admin", "keda")
        self._ports = dict(zip(names, free_ports(5), strict=True))
        self.environment = self._settings | self._addresses(discover)
        self.started: list[harness.Program] = []

    def start(self, deployment: str, place: str = "containers", **told: str) -> None:
        """Its first container; `told` is what Kubernetes puts into the arguments."""
        words = self._pods[deployment][place][0]["args"]
        for name, value in told.items():
            words = [word.replace(name, value) for word in words]
        words = [word.replace("$(SERVEGATE_STORAGE)", self._storage) for word in words]
        state = self._folder / f"state-{len(self.started)}"
        state.mkdir()
        env = self.environment | {"SERVEGATE_STATE": str(state)}
        self.started.append(harness.Program(*words, cwd=state, env=env))

    def probe(self, deployment: str, kind: str) -> bool:
        """Whether this probe of the first container succeeds now."""
        asked = self._pods[deployment]["containers"][0][kind]["httpGet"]
        url = f"http://127.0.0.1:{self._ports[asked['port']]}{asked['path']}"
        try:
            with urllib.request.urlopen(url) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def run(self, *arguments: str, **env: str) -> str:
        """A command as in the control plane's pod; what it prints."""
        done = harness.servegate(*arguments, env=self.environment | env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self) -> str:
        return "\n".join([*(each.output for each in self.started), self._machine.said()])

    def call(self, model: str, **headers: str) -> tuple[int, Any]:
        return harness.request(
            f"http://127.0.0.1:{self._ports['http']}/v2/models/{model}", **headers
        )

    @property
    def _storage(self) -> str:
        return str(self._settings["SERVEGATE_STORAGE"])

    def _addresses(self, discover: str) -> dict[str, str]:
        at = {name: f"http://127.0.0.1:{port}" for name, port in self._ports.items()}
        ports = {f"SERVEGATE_{name.upper()}_PORT": str(port) for name, port in self._ports.items()}
        return ports | {
            "SERVEGATE_HOST": "127.0.0.1",
            "SERVEGATE_ADMIN_HOST": "127.0.0.1",
            "SERVEGATE_CONTROL": at["admin"],
            "SERVEGATE_ADMIN_URL": at["admin"],
            "SERVEGATE_GATEWAY": f"{at['http']},{at['grpc']},{at['metrics']}",
            "SERVEGATE_DISCOVER": discover,
            "SERVEGATE_QUARANTINE": "off",  # there is no Triton in the image
            "SERVEGATE_SECRET": fleets.SECRET.replace(" ", "-"),
        }


def _named(objects: tuple[Object, ...], kind: str, name: str) -> Object:
    (found,) = [
        each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return found


@contextlib.contextmanager
def running(
    rendering: Rendering, machine: fleets.Machine, folder: Path, **settings: str
) -> Iterator[Tried]:
    """The planes run, and the pod of the Triton is announced."""
    with announcing.Cluster() as cluster:
        one = Tried(rendering.objects, cluster.flag, folder, machine)
        one.environment |= settings
        try:
            machine.start_triton()
            one.start("servegate-control")
            one.start("servegate-gateway")
            cluster.announce(machine)
            yield one
            assert {each.stop() for each in one.started} == {0}
        finally:
            for each in one.started:
                each.stop()
            machine.stop()


@pytest.fixture
def tried(rendered: dict[str, Rendering], tmp_path: Path) -> Iterator[Tried]:
    machine = fleets.Machine(tmp_path, POD)
    with running(rendered["overlays/try"], machine, tmp_path) as one:
        own = {"$(POD_NAME)": POD, "--folder=/models": f"--folder={machine.repository}"}
        one.start("triton-default", "initContainers", **own)
        yield one


def test_a_model_is_pushed_and_called_with_the_settings_of_the_overlay_try(tried: Tried) -> None:
    for deployment in ("servegate-control", "servegate-gateway"):
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            harness.until(lambda d=deployment, k=kind: tried.probe(d, k), what=tried.said)
    key = tried.run("key", "create", "--role", "admin").strip()
    tried.run("model", "push", "model_repo/digits", "digits", "--wait", SERVEGATE_KEY=key)
    assert tried.call("digits")[0] == 401
    answer = tried.call("digits", authorization=f"Bearer {key}")
    assert answer[0] == 200
    assert answer[1]["name"] == "digits"
    assert POD in tried.run("replica", "ls")


class Predictor(fleets.Machine):
    def words(self, setup: LauncherSetup) -> tuple[str, ...]:
        words = super().words(setup)
        own = tuple(word.replace("control-mode=explicit", "control-mode=none") for word in words)
        assert own != words
        return own


@pytest.fixture
def routing(rendered: dict[str, Rendering], tmp_path: Path) -> Iterator[Tried]:
    machine = Predictor(tmp_path, POD)
    shutil.copytree(harness.ROOT / "model_repo" / "digits", machine.repository / "digits")
    example = rendered["examples/kserve/routing"]
    with running(example, machine, tmp_path, SERVEGATE_STORAGE="") as one:
        yield one


def test_what_kserve_has_loaded_is_routed_and_nothing_can_be_pushed(routing: Tried) -> None:
    harness.until(lambda: routing.probe("servegate-gateway", "readinessProbe"), what="gateway")
    key = routing.run("key", "create", "--role", "admin").strip()
    bearer = {"authorization": f"Bearer {key}"}
    status, told = harness.until(
        lambda: answer if (answer := routing.call("digits", **bearer))[0] == 200 else None,
        what=f"digits: {routing.started[0].output}",
    )
    assert (status, told["name"]) == (200, "digits")
    assert routing.call("digits")[0] == 401
    assert POD in routing.run("replica", "ls", SERVEGATE_KEY=key)
    pushed = harness.servegate(
        *("model", "push", "model_repo/digits", "digits"),
        env=routing.environment | {"SERVEGATE_KEY": key},
    )
    assert pushed.returncode != 0
    assert "versions cannot be pushed to this gateway" in pushed.stderr
