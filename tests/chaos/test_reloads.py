"""Versions of one model come and go fifty times under a load: nobody's calls fail."""

import json
import os

import harness
import pushing
import pytest
from background import Load

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

REPLICAS = 2
CYCLES = 25  # each a load and an unload on every replica
FRESH = 5  # every so many cycles begin with a push
NEVER = "86400"  # seconds between two scheduled runs of a contract


class Reloading:
    """A gateway whose model `reloaded` serves version 1, while later ones come and go."""

    def __init__(self, up, folder):
        self.up = up
        self._folder = folder
        folder.mkdir()
        self._golden = str(pushing.golden(folder / "golden.npz", 3.0))
        self._last = 0
        self.loads = 0

    def prepare(self):
        for name in ("reloaded", "beside"):
            source = pushing.source(self._folder / name, 2.0)
            pushing.pushed(self.up, source, name, "--wait")

    def cycle(self):
        if self.loads % (FRESH * REPLICAS) == 0:
            self._push()
        else:
            self._version("POST", "/restore")
            harness.until(lambda: len(self._shown()["replicas"]) == REPLICAS)
        self.loads += REPLICAS
        self._version("DELETE")
        harness.until(self._is_unloaded, what="it is unloaded")

    def _push(self):
        folder = pushing.source(self._folder / f"version-{self.loads}", 3.0)
        (folder / "1" / "weights.bin").write_bytes(os.urandom(1000))  # so that it is a new one
        flags = ("--wait", "--golden", self._golden)
        self._last = pushing.pushed(self.up, folder, "reloaded", *flags)["version"]

    def _version(self, method, action=""):
        path = f"{self.up.admin}/api/models/reloaded/versions/{self._last}{action}"
        status, answer = harness.request(path, method)
        assert status == 200, answer

    def _shown(self):
        return pushing.state(self.up, "reloaded", self._last)

    def _is_unloaded(self):
        replicas = self.up.get("/api/replicas?readings=false")
        return [replica["held"]["reloaded"] for replica in replicas] == [[1]] * REPLICAS


def test_fifty_loads_fail_no_call_of_their_own_or_another_model(tmp_path):
    flags = (
        *("--model-repo", "", "--replicas", str(REPLICAS), "--workers", "1", "--quarantine", "off"),
        *("--contract-interval", NEVER, "--access-log", ""),
    )
    inputs = [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": pushing.ROW}]
    body = json.dumps({"inputs": inputs})

    def call(number, count):
        model = ("beside", "reloaded")[count % 2]
        return f"/v2/models/{model}/infer", body, model

    with harness.up(tmp_path / "state", *flags) as up:
        reloading = Reloading(up, tmp_path / "models")
        reloading.prepare()
        with Load(up.http, call, clients=8, pause=0.05) as load:
            for _ in range(CYCLES):
                reloading.cycle()
    assert reloading.loads == CYCLES * REPLICAS
    assert load.failures == [], load.failures[:3]
    assert set(load.versions) == {"1"}
