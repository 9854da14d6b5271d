"""The KServe example `routing`, run as processes before a Triton that loads by itself.

What KServe would do is done by hand: models lie in a folder, and Triton starts with it. The planes
have the arguments and settings of the example; addresses, ports, the store and the API
server are ours.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import announcing
import fleets
import harness
import pytest

from k8s.rendering import Rendering
from k8s.test_try_serves import Tried
from serve.triton.local_triton import LauncherSetup

pytestmark = pytest.mark.triton
POD = "digits-predictor-6d5f"


class Predictor(fleets.Machine):
    """A Triton that loads what it finds when it starts, and refuses to be told."""

    def words(self, setup: LauncherSetup) -> tuple[str, ...]:
        """See `Machine`."""
        words = super().words(setup)
        own = tuple(word.replace("control-mode=explicit", "control-mode=none") for word in words)
        assert own != words
        return own


@pytest.fixture
def routing(rendered: dict[str, Rendering], tmp_path: Path) -> Iterator[Tried]:
    """The example runs, and KServe's pod is announced."""
    machine = Predictor(tmp_path, POD)
    shutil.copytree(harness.ROOT / "model_repo" / "digits", machine.repository / "digits")
    with announcing.Cluster() as cluster:
        objects = rendered["examples/kserve/routing"].objects
        one = Tried(objects, cluster.flag, tmp_path, machine)
        one.environment["SERVEGATE_STORAGE"] = ""
        try:
            machine.start_triton()
            one.start("servegate-control")
            one.start("servegate-gateway")
            cluster.announce(machine)
            yield one
        finally:
            for each in one.started:
                each.stop()
            machine.stop()


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
