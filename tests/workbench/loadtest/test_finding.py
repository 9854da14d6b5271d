"""The search for the highest rate: on servers that obey a script, some of them noisy."""

import asyncio
import math
from collections.abc import Callable

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.workbench.loadtest.rate_search import RateTrial, SearchResult, find_max


class Server:
    """Passes below its limit, but not in the trials that `hiccups` names."""

    def __init__(self, limit: float, *, hiccups: tuple[int, ...] = ()) -> None:
        self._limit = limit
        self._hiccups = hiccups

    async def __call__(self, rate: float, number: int) -> RateTrial:
        is_hiccup = number in self._hiccups
        passed = rate <= self._limit and not is_hiccup
        return RateTrial(
            rate, passed, "" if passed else "p99 is 40 ms", achieved=min(rate, self._limit)
        )


class NoisyServer:
    """Its limit is another one each time, some per cent away; a trial may fail without a reason."""

    def __init__(self, limit: float, *, noise: float, hiccup: float, seed: int) -> None:
        self._limit = limit
        self._noise = noise
        self._hiccup = hiccup
        self._draws = np.random.default_rng(seed)

    async def __call__(self, rate: float, number: int) -> RateTrial:
        limit = self._limit * math.exp(self._noise * self._draws.standard_normal())
        return RateTrial(rate, rate <= limit and self._draws.random() >= self._hiccup)


def search(
    server: Callable[[float, int], object],
    *,
    first: float = 10,
    most: float = 10_000,
    precision: float = 0.03,
    trials: int = 30,
) -> SearchResult:
    return asyncio.run(
        find_max(server, first=first, most=most, precision=precision, trials=trials)  # type: ignore[arg-type]
    )


def steps(found: SearchResult) -> list[str]:
    return [each.step for each in found.trials]


def test_the_highest_rate_is_found_within_the_precision() -> None:
    for limit in (11.0, 27.3, 100.0, 812.0, 9_999.0, 3.7, 0.5):
        found = search(Server(limit))
        assert limit / 1.035 <= found.rate <= limit
        assert found.is_confirmed
        assert found.rate < found.failed <= found.rate * 1.035
        assert found.notes == ()


def test_a_search_doubles_bisects_tries_the_limit_again_and_confirms() -> None:
    found = search(Server(50.0), precision=0.2)
    doubled = [("doubling", rate) for rate in (10.0, 20.0, 40.0, 80.0)]
    halved = [("bisection", 56.57), ("bisection", 47.57)]
    confirmed = [("again", 56.57), ("confirmation", 47.57)]
    found_in = [(each.step, each.rate) for each in found.trials]
    assert found_in == doubled + halved + confirmed


def test_a_first_rate_that_fails_is_halved() -> None:
    found = search(Server(3.0))
    assert steps(found)[:5] == ["doubling", "again", "halving", "again", "halving"]
    assert 2.9 <= found.rate <= 3.0


def test_a_server_that_passes_nothing_has_no_rate() -> None:
    found = search(Server(0.0))
    assert found.rate == 0
    assert not found.is_confirmed
    assert found.notes == ("Even 0.1562/s did not pass.",)
    assert len(found.trials) == 14


def test_a_server_that_passes_everything_has_the_highest_rate_allowed() -> None:
    found = search(Server(math.inf), most=500)
    assert (found.rate, found.failed, found.is_confirmed) == (500, math.inf, True)
    assert found.notes == ("No rate up to 500/s failed. The limit may be higher.",)


@pytest.mark.parametrize("hiccup", range(12))
def test_a_hiccup_at_any_time_of_the_search_is_no_limit(hiccup: int) -> None:
    found = search(Server(812.0, hiccups=(hiccup,)))
    assert 812 / 1.035 <= found.rate <= 812
    assert found.is_confirmed
    assert (
        any("The failure is ignored" in note for note in found.notes)
        or found.trials[hiccup].rate > 812
    )


def test_a_confirmation_that_fails_twice_makes_the_rate_a_step_lower() -> None:
    undisturbed = search(Server(812.0))
    last = len(undisturbed.trials) - 1
    found = search(Server(812.0, hiccups=(last, last + 1)))
    assert found.rate == pytest.approx(undisturbed.rate / 1.03, rel=1e-3)
    assert found.failed == undisturbed.rate
    assert found.is_confirmed
    assert found.notes == (
        f"{undisturbed.rate:g}/s was rejected because its confirmation failed twice.",
    )


def test_a_noisy_server_s_rate_is_found_within_five_per_cent() -> None:
    servers = [NoisyServer(400.0, noise=0.01, hiccup=0.03, seed=seed) for seed in range(200)]
    all_found = [search(server) for server in servers]
    assert all(found.is_confirmed for found in all_found)
    near = [abs(found.rate / 400.0 - 1) <= 0.05 for found in all_found]
    assert sum(near) >= 0.97 * len(near)


def test_a_search_ends_after_its_trials_with_the_best_it_has_seen() -> None:
    found = search(Server(812.0), trials=5)
    assert len(found.trials) == 5
    assert (found.rate, found.is_confirmed) == (160, False)
    assert found.notes[0] == "The search did not finish within 5 trials."


def test_numbers_that_allow_no_search_are_invalid() -> None:
    for first, most, precision in ((0, 10, 0.03), (20, 10, 0.03), (1, math.inf, 0.03), (1, 2, 0)):
        refusal(Invalid, search, Server(5.0), first=first, most=most, precision=precision)
