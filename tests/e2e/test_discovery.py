"""Tritons are found while the control plane runs, and what finds them fails: no call does (C23).

Real parts but for the API server of Kubernetes, which is ours: see tests/fixtures/fake_kubernetes.
"""

import urllib.request

import announcing
import fleets
import harness
import pytest
import repositories
from background import steady

pytestmark = [pytest.mark.triton, pytest.mark.slow]
BODY = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [2.5]}]}'


class Found(fleets.Fleet):
    def __init__(self, folder, cluster):
        self.machines_there = [fleets.Machine(folder, "pod-a"), fleets.Machine(folder, "pod-b")]
        for machine in self.machines_there:
            repositories.python_model(machine.repository, "plain", repositories.PLAIN)
        models = str(self.machines_there[0].repository)
        flags = ("--discover", cluster.flag, "--model-repo", models, "--delivery", "folder")
        super().__init__(folder / "state", flags=flags, env={})

    def stop(self):
        super().stop()
        for machine in self.machines_there:
            machine.stop()

    def until_called(self, *names):
        harness.until(lambda: self.called("plain", 1) == set(names), what=self.program.output)

    def until_up(self, up):
        """The source answers, or does not, as its metric tells."""
        harness.until(lambda: self.number("up") == float(up), what=f"up is {up}")

    def number(self, name):
        with urllib.request.urlopen(self.admin + "/metrics") as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [one for one in lines if one.startswith(f"servegate_discovery_{name}{{")]
        return float(line.rpartition(" ")[2])


@pytest.fixture(scope="module")
def cluster():
    with announcing.Cluster() as one:
        yield one


@pytest.fixture(scope="module")
def fleet(cluster, tmp_path_factory):
    one = Found(tmp_path_factory.mktemp("found"), cluster)
    try:
        for machine in one.machines_there:
            machine.start_triton()
        cluster.announce(*one.machines_there)
        one.wait_ready().until_called("pod-a", "pod-b")
        yield one
    finally:
        one.stop()


def served(fleet):
    harness.until(
        lambda: harness.request(f"http://{fleet.http}/v2/models/plain/ready")[0] == 200,
        what="the worker serves",
    )


def test_calls_go_on_while_the_api_server_goes_away_and_names_nobody(fleet, cluster):
    a, b = fleet.machines_there
    served(fleet)
    with steady(fleet.http, "plain", BODY) as load:
        cluster.go_away()
        fleet.until_up(False)
        cluster.come_back()
        fleet.until_up(True)
        assert fleet.called("plain", 1) == {"pod-a", "pod-b"}
        cluster.withdraw(a, b)
        harness.until(lambda: fleet.number("problems") == 1, what="that is doubted")
        assert fleet.called("plain", 1) == {"pod-a", "pod-b"}
        cluster.announce(a, b)
        harness.until(lambda: fleet.number("problems") == 0, what="they are back")
        load.wait_calls(10)
    assert load.failures == []
    assert "no longer lists any replica of pool" in fleet.program.output
    assert "Traceback" not in fleet.program.output


def test_tritons_come_and_go_with_their_endpoints_and_no_call_fails(fleet, cluster):
    b = fleet.machines_there[1]
    served(fleet)
    with steady(fleet.http, "plain", BODY) as load:
        cluster.announce(b, terminating=True)
        fleet.until_called("pod-a")
        harness.until(lambda: [one["name"] for one in fleet.get("/api/replicas")] == ["pod-a"])
        b.kill_triton()
        cluster.withdraw(b)
        cluster.announce(b)  # as the pod that comes after it, which does not answer yet
        harness.until(lambda: len(fleet.get("/api/replicas")) == 2)
        b.start_triton()
        fleet.until_called("pod-a", "pod-b")
    assert load.failures == []
