"""Health: how long a replica is avoided after a failure, and what clears it."""

from builders import Clock

from serve.proxy.health import FIRST_PAUSE, LONGEST_PAUSE, Health


def pauses(health: Health, clock: Clock, *, failures: int) -> list[float]:
    """How long the replica is avoided after each of its failures."""
    lengths = []
    for _ in range(failures):
        health.failed("a")
        begun = clock.now
        while not health.is_usable("a"):
            clock.now += 0.25
        lengths.append(clock.now - begun)
    return lengths


def test_a_failed_replica_is_avoided_for_all_its_models_and_then_tried_again() -> None:
    clock = Clock()
    health = Health(clock)
    assert health.is_usable("a", "m/1")
    health.failed("a")
    assert not health.is_usable("a")
    assert not health.is_usable("a", "m/1")
    assert health.is_usable("b")
    assert repr(health) == "<Health avoiding=[('a', '')] ejected=[]>"
    clock.now += FIRST_PAUSE
    assert health.is_usable("a", "m/1")
    assert repr(health) == "<Health avoiding=[] ejected=[]>"


def test_the_pause_doubles_with_every_failure_up_to_its_longest() -> None:
    clock = Clock()
    lengths = pauses(Health(clock), clock, failures=7)
    assert lengths == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE, LONGEST_PAUSE]


def test_calls_that_failed_together_count_once() -> None:
    clock = Clock()
    health = Health(clock)
    for _ in range(50):
        health.failed("a")
    clock.now += FIRST_PAUSE
    assert health.is_usable("a")


def test_a_success_begins_the_count_anew() -> None:
    clock = Clock()
    health = Health(clock)
    pauses(health, clock, failures=4)
    health.answered("a", "m/1")
    assert not health.pauses
    assert pauses(health, clock, failures=1) == [FIRST_PAUSE]


def test_a_version_that_is_absent_is_avoided_alone_until_it_has_answered_well() -> None:
    health = Health(Clock())
    health.failed("a")
    health.failed("a", "m/2")
    health.answered("a")  # badly: the replica can be reached
    assert not health.is_usable("a", "m/2")
    health.answered("a", "m/1")
    assert not health.is_usable("a", "m/2")
    assert health.is_usable("a", "m/1")
    assert health.is_usable("a")
    health.answered("a", "m/2")
    assert health.is_usable("a", "m/2")


def test_those_are_avoided_that_failed_for_all_or_for_this_version() -> None:
    clock = Clock()
    health = Health(clock)
    health.failed("a")
    health.failed("b", "m/2")
    health.failed("c", "m/1")
    assert set(health.avoided("m/2")) == {"a", "b"}
    assert set(health.avoided("")) == {"a"}
    clock.now += FIRST_PAUSE
    assert not health.avoided("m/2")


def test_pauses_that_are_long_over_are_forgotten() -> None:
    clock = Clock()
    health = Health(clock)
    health.failed("a", "m/1")
    clock.now += 1000.0
    health.failed("b")
    assert list(health.pauses) == [("b", "")]
