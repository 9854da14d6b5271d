"""How a version is batched, seen through the whole program."""

from collections import Counter
from pathlib import Path

import pytest
import repositories
from harness import RunningGateway, request, servegate, until

pytestmark = [pytest.mark.triton, pytest.mark.slow]

_PATH = "/api/models/batched/versions/2/batching"


def call(gateway: RunningGateway, rows: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 8, 8, 1], "data": [0.0] * 64 * rows}
    url = f"http://{gateway.http}/v2/models/batched/versions/2/infer"
    status, answer = request(url, "POST", {"inputs": [tensor]})
    assert status == 200, answer


def executions(gateway: RunningGateway) -> Counter[int]:
    page = gateway.get(_PATH)
    return Counter({one["rows"]: one["executions"] for one in page["window"]["batches"]})


def test_the_batches_of_the_last_minutes_are_shown_by_their_size(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    repositories.serve(gateway, repositories.digits(tmp_path / "models", "batched"))
    before = until(lambda: gateway.get(_PATH)["window"]["replicas"], what="a first difference")
    assert set(before) <= {"local-0", "local-1"}
    known = executions(gateway)
    for rows in (1, 3, 3, 5, 5, 5):
        call(gateway, rows)
    wanted = Counter({1: 1, 3: 2, 5: 3})
    until(lambda: wanted <= executions(gateway) - known, what="the calls that were sent")
    assert gateway.get(_PATH)["instances_told"] is True
    shown = servegate("batching", "show", "batched@2", "--admin-url", gateway.admin)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("batched@2: max_batch_size 64, 1 instance on each replica, on ")
    assert "batches, by rows:" in shown.stdout
    assert "advice:" in shown.stdout
