"""A serving configuration is changed again and again under a steady load: nobody's calls fail."""

import random

import harness
import pushing
import pytest
from reconfiguring import BATCHES, calling, in_triton, put

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

RATE = 150.0  # calls a second
FLAGS = (
    *("--model-repo", "", "--workers", "1", "--quarantine", "off"),
    *("--contract-interval", "86400", "--access-log", ""),
)


def drawn(draw, number):
    """Fields of a change: another size each time, and mostly something else as well."""
    fields = {"max_batch_size": 8 + number}
    if draw.random() < 0.7:
        delay = {"max_queue_delay_microseconds": draw.choice([0, 200, 1000])}
        fields["dynamic_batching"] = draw.choice([None, delay])
    if draw.random() < 0.5:
        fields["instance_group"] = [{"count": draw.choice([1, 2, 3]), "kind": "KIND_CPU"}]
    return fields


@pytest.mark.parametrize(("replicas", "changes"), [(2, 20), (1, 5)])
def test_changes_fail_no_call(tmp_path, replicas, changes):
    """An only replica loads while it serves: Triton goes on with what it has until then."""
    draw = random.Random(11)
    with harness.up(tmp_path / "state", "--replicas", str(replicas), *FLAGS) as up:
        folder = pushing.source(tmp_path / "m", 2.0, more=BATCHES)
        golden = str(pushing.golden(tmp_path / "golden.npz", 2.0))
        pushing.pushed(up, folder, "m", "--wait", "--golden", golden)
        with calling(up, "m", rate=RATE) as load:
            for number in range(changes):
                fields = drawn(draw, number)
                done = put(up, "m", fields)
                assert done["change"]["outcome"] == "applied", done["change"]
                assert in_triton(up, "m")["max_batch_size"] == fields["max_batch_size"]
    times = sorted(call.seconds for call in load.done)
    print(
        f"\n{len(load.done)} calls, {len(load.failed())} failed, during {changes} changes on"
        f" {replicas} replicas; p50 {1000 * times[len(times) // 2]:.1f} ms,"
        f" p99 {1000 * times[int(0.99 * len(times))]:.1f} ms, longest {1000 * times[-1]:.0f} ms"
    )
    assert load.failed() == []
