"""What a real gateway and a real Triton tell those who watch."""

import json
import urllib.request

import harness
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


def samples(answer):
    """Every sample of a stream, as it comes."""
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def call(up, version):
    url = f"http://{up.http}/v2/models/digits/versions/{version}/infer"
    with urllib.request.urlopen(urllib.request.Request(url, SEVEN), timeout=30) as answer:
        assert answer.status == 200


def test_calls_are_seen_as_they_happen_at_the_gateway_and_in_triton(seeded):
    with urllib.request.urlopen(f"{seeded.admin}/api/live/events", timeout=30) as answer:
        told = samples(answer)
        next(one for one in told if one["gateway"]["calls"] is not None)
        call(seeded, 2)
        for sample in told:
            if sample["gateway"]["calls"]:
                break
            call(seeded, 2)
        if not sample["replicas"]["local-0"]["models"]["digits"]["requests"]:
            sample |= {"replicas": next(told)["replicas"]}  # Triton told its numbers just before
    assert sample["models"]["digits"]["versions"]["2"]["http"]["calls"] > 0
    assert 0 < sample["gateway"]["p50"] <= sample["gateway"]["p99"]
    assert sample["gateway"]["memory"] > 1e6
    work = sample["replicas"]["local-0"]["models"]["digits"]
    assert work["requests"] > 0 and work["batch"] >= 1 and work["compute"] > 0


def test_the_history_has_what_was_streamed(seeded):
    history = seeded.get("/api/live")
    assert len(history["seconds"]) == len(history["gateway"]["calls"])
    assert set(history["replicas"]) == {"local-0"}


def test_the_pools_hint_is_told_beside_and_the_command_tells_the_same(seeded):
    with urllib.request.urlopen(f"{seeded.admin}/api/live/events", timeout=30) as answer:
        sample = next(
            one for one in samples(answer) if one["pools"].get("default", {}).get("ready") == 1
        )
    assert sample["pools"]["default"]["desired"] == 1
    (hint,) = [one for one in sample["hints"] if one["kind"] == "scaling"]
    assert (hint["about"], hint["what"]) == ("default", "1 replica")
    done = harness.servegate("hints", "show", "default", "--admin-url", seeded.admin)
    assert done.stdout.splitlines()[0] == "default: 1 replica"
