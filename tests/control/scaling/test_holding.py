"""Readings that are old, missing or wrong: what was asked for is held, and the reason is told."""

import math
import re
from pathlib import Path

import pytest
from builders import Clock
from control.scaling.watched_pools import Calls, Scene, text

from serve.capacity.scaling.policy import RESTARTED, STALE, TICK
from serve.capacity.scaling.signals import Bounds, Code, Reason, ReplicaHint
from serve.control.scaling.held_hints import Lasting
from serve.control.scaling.signals import Allowed


class Settled(Scene):
    """A pool of two that needs more than two; `wanted` is what its hint has said before."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder=folder)
        self.settle()
        busy(self, rounds=4)
        self.wanted = self.hint().hint.desired
        assert self.wanted > 3, self.hint()


@pytest.fixture
def scene() -> Settled:
    return Settled()


def held(scene: Scene, code: Code, words: str, desired: int) -> None:
    hint = scene.hint().hint
    assert (hint.desired, hint.confidence) == (desired, "low")
    assert hint.codes == {code}
    assert words in hint.reasons[0].text


def busy(scene: Scene, rounds: int = 1) -> None:
    """Both replicas execute what comes."""
    scene.work(rate=900.0, rounds=rounds, b1=(900, 0.010), b2=(450, 0.012))


@pytest.mark.parametrize("raw", [None, "<html>it is being repaired</html>"])
def test_a_gateway_that_is_not_read_any_more(scene: Settled, raw: str | None) -> None:
    scene.raw = raw
    if raw is None:
        scene.gateway = None
    for _ in range(int(STALE / TICK)):
        scene.look()
        assert scene.hint().hint.desired > 2  # it is not so old yet
    scene.look()
    held(scene, Code.STALE, "the readings of the gateway are 20 s old", scene.wanted)


def test_a_replica_that_does_not_tell_what_it_has_counted(scene: Settled) -> None:
    scene.told["b"] = None
    scene.work(rounds=int(STALE / TICK) + 1, rate=900.0, on="a", b1=(900, 0.010))
    held(scene, Code.STALE, "the readings of m are 20 s old", scene.wanted)


def test_a_replica_that_is_lost_is_not_waited_for(scene: Settled) -> None:
    scene.told["b"] = None
    scene.fleet.lost("b", "it does not answer")
    scene.work(rounds=5, rate=900.0, on="a", b1=(900, 0.010))
    assert scene.hint().hint.confidence == "high"


def test_numbers_that_cannot_be(scene: Settled) -> None:
    for number in ("nan", "-5", "+Inf"):
        wanted = scene.hint().hint.desired
        assert scene.gateway is not None
        told = text(scene.gateway)
        scene.raw = re.sub(r"(?m)^(servegate_calls_total.*) \S+$", rf"\1 {number}", told)
        scene.look()
        held(scene, Code.INVALID, "the gateway's metrics contain invalid numbers for m", wanted)
        scene.raw = None
        busy(scene, rounds=2)
        assert scene.hint().hint.confidence == "high", number


def test_a_gateway_that_counts_from_zero_again_whether_it_was_called_since_or_not(
    scene: Settled,
) -> None:
    for counted in ({"m": Calls(answered={0.01: 3.0})}, {}):
        scene.gateway = dict(counted)
        scene.look()
        held(scene, Code.INVALID, "the gateway's counters decreased", scene.wanted)
        scene.gateway.setdefault("m", Calls())
        busy(scene)
        assert scene.hint().hint.confidence == "high"
        assert scene.model().recent == pytest.approx(900.0)


def test_a_replica_that_counts_from_zero_again(scene: Settled) -> None:
    scene.told["a"] = {}
    scene.execute("a", b1=(7, 0.01))
    busy_before = scene.model().capacity
    scene.call(rate=900.0)
    scene.look()
    held(scene, Code.INVALID, "the counters of a decreased", scene.wanted)
    busy(scene)
    assert scene.hint().hint.confidence == "high"
    assert scene.model().capacity == pytest.approx(busy_before, rel=0.1)


def test_readings_that_cannot_be(scene: Settled) -> None:
    scene.pending = {("m", 1): -3}
    scene.look()
    held(scene, Code.INVALID, "m: waiting is -6", scene.wanted)
    scene.pending = {}
    scene.gpus = {"a": {"GPU-1": {"utilization": math.nan}}}
    scene.look()
    held(scene, Code.INVALID, "utilization is nan", scene.wanted)


def test_hints_survive_a_restart_with_a_hold_and_no_jump(scene: Settled) -> None:
    scene.starting = {"default": 1}
    scene.begin()
    for _ in range(int(RESTARTED / TICK)):
        busy(scene)
        hint = scene.hint().hint
        assert (hint.desired, hint.codes) == (3, {Code.RESTARTED})
    busy(scene, rounds=2)
    hint = scene.hint().hint
    assert (hint.confidence, hint.desired) == ("high", scene.wanted)


def test_what_was_asked_for_before_a_restart_is_asked_for_unless_that_was_long_ago_or_is_lost(
    tmp_path: Path,
) -> None:
    def restarted(desired: int) -> None:
        scene.begin()
        busy(scene)
        held(scene, Code.RESTARTED, "the control plane has just started", desired)

    scene = Settled(tmp_path)  # and nobody tells that two more are being started
    scene.wall.now += 200.0
    restarted(scene.wanted)
    scene.wall.now += 301.0
    restarted(2)
    (tmp_path / "hints.json").write_text('{"at": "noon"}')
    restarted(2)


def test_no_more_is_held_than_is_allowed_by_now(scene: Settled) -> None:
    scene.allowed = {"default": Allowed(Bounds(1, 100, budget=3))}
    scene.gateway = {}
    scene.look()
    assert scene.hint().hint.desired == 3


def test_a_start_without_a_gateway_holds_for_as_long_as_that_lasts() -> None:
    scene = Scene()
    scene.gateway = None
    scene.settle()
    for _ in range(100):
        scene.look()
    held(scene, Code.STALE, "the readings of the gateway are", 2)


# --- hints that are only held, and what was asked for before --------------------------------------

BOUNDS = Bounds(1, 10)


def hint(desired: int, code: Code, pool: str = "p") -> ReplicaHint:
    return ReplicaHint(pool, desired, desired, 0, 1.0, (Reason(code, "so it is"),))


def test_a_hint_that_is_held_is_no_less_than_the_one_before() -> None:
    lasting = Lasting(Path("/nowhere/hints.json"), wall=Clock())
    for given, code, told in (
        (6, Code.DEMAND, 6),
        (2, Code.STALE, 6),
        (2, Code.INVALID, 6),
        (8, Code.STALE, 8),
        (4, Code.FALLING, 4),
        (1, Code.RESTARTED, 4),
    ):
        assert lasting.hold(hint(given, code), BOUNDS).desired == told
    lasting.hold(hint(6, Code.DEMAND), BOUNDS)
    assert lasting.hold(hint(2, Code.STALE, pool="q"), BOUNDS).desired == 2
    assert lasting.hold(hint(2, Code.STALE), Bounds(1, 10, budget=5)).desired == 5
    # that the folder is not there ends nothing
    lasting.write()
    lasting.read()
    assert lasting.hold(hint(2, Code.DEMAND), BOUNDS).desired == 2


def test_numbers_are_written_when_they_change_and_once_a_minute(tmp_path: Path) -> None:
    wall, file = Clock(), tmp_path / "hints.json"
    lasting = Lasting(file, wall=wall)
    lasting.hold(hint(6, Code.DEMAND), BOUNDS)
    lasting.write()
    file.unlink()
    lasting.write()
    assert not file.exists()
    wall.now += 60.0
    lasting.write()
    assert file.exists()
    file.unlink()
    lasting.hold(hint(7, Code.DEMAND), BOUNDS)
    lasting.write()
    assert file.exists()
