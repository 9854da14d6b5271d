"""A data plane that is stopped, as Kubernetes does it: unready at once, and alive for its calls."""

import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import harness
from builders import replica, snapshot, target, view
from model_server import ModelServer

from serve.app.paths import SNAPSHOT_FILE

BODY = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


def ask(up: harness.RunningGateway, path: str) -> tuple[int, str]:
    """Status and text on the metrics port; 0 while nobody listens there."""
    try:
        url = f"http://127.0.0.1:{up.metrics_port}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_one_that_is_stopped_is_unready_at_once_and_tells_its_numbers_until_its_last_call(
    tmp_path: Path,
) -> None:
    up, statuses = harness.RunningGateway(tmp_path), []

    def call() -> None:
        url = f"http://{up.http}/v2/models/m/infer"
        statuses.append(harness.request(url, "POST", BODY)[0])

    with ModelServer() as model:
        port = int(model.address.rpartition(":")[2])
        replicas = MappingProxyType({"a": replica("a", http=port)})
        known = replace(snapshot(view(target(1, "a"))), replicas=replicas)
        (tmp_path / SNAPSHOT_FILE).write_text(json.dumps(known.to_json()))
        program = harness.Program("proxy", *up.flags(), "--control", "http://127.0.0.1:9")
        harness.until(lambda: ask(up, "/readyz")[0] == 200, what="it is ready")
        model.holds.clear()
        caller = threading.Thread(target=call)
        caller.start()
        harness.until(lambda: model.calls, what="the call arrives")
        program.process.terminate()
        harness.until(lambda: ask(up, "/readyz")[0] == 503, what="it is unready")
        assert ask(up, "/readyz")[1].startswith("draining: ")
        assert ask(up, "/livez") == (200, "ok\n")
        in_flight = 'servegate_replica_calls_in_flight{pool="default",replica="a"'
        (line,) = [one for one in up.metrics().splitlines() if one.startswith(in_flight)]
        assert line.endswith(" 1.0") and program.process.poll() is None
        model.holds.set()
        caller.join(20)
        assert statuses == [200]
        assert program.stop() == 0, program.output
    assert ask(up, "/livez") == (0, "")
