"""Admission: a finite number of calls per model, which follows callers who give up."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from serve.core.errors import Overloaded
from serve.proxy.admission import FEWEST, Admission
from serve.proxy.loads import Loads

TICK = 0.01  # seconds
SWEEP = 10  # ticks
SERVERS, TAKES = 4, 10  # ticks: the capacity is 40 calls a second


def test_a_model_at_its_limit_refuses_the_next_call_until_one_leaves() -> None:
    loads = Loads()
    admission = Admission(loads, limit=2)
    for model in ("m", "m", "other"):
        admission.enter(model)
    with pytest.raises(Overloaded, match="limit of 2"):
        admission.enter("m")
    assert (loads.models, loads.total) == ({"m": 2, "other": 1}, 3)
    admission.leave("m")
    admission.enter("m")
    for model in ("m", "m", "other"):
        admission.leave(model)
    assert loads.models == {}


def test_loads_keep_replicas_and_models_apart() -> None:
    loads = Loads()
    Admission(loads, limit=9).enter("x")
    loads.entered("x")
    loads.entered("x")
    loads.left("x")
    loads.entered("x")
    assert (loads.models, loads.on_replica("x"), loads.total) == ({"x": 1}, 2, 1)
    loads.left("x")
    loads.left("x")
    assert (loads.replicas, loads.on_replica("x")) == ({}, 0)


# --- callers who give up --------------------------------------------------------------------------


@dataclass(slots=True)
class Call:
    came: float
    patience: float
    has_left: bool = False


@dataclass(slots=True)
class Line:
    """Callers, a gateway and a Triton that answers in order, by a clock that the test moves."""

    limit: int = 256
    ticks: int = 0
    total: tuple[int, float] = (0, 0.0)
    answered: int = 0
    late: int = 0
    refused: list[Overloaded] = field(default_factory=list)
    admission: Admission = field(init=False)
    waiting: deque[Call] = field(default_factory=deque)
    working: list[tuple[int, Call]] = field(default_factory=list)
    came: float = 0.0

    def __post_init__(self) -> None:
        self.admission = Admission(Loads(), limit=self.limit)

    @property
    def now(self) -> float:
        return self.ticks * TICK

    def run(self, seconds: float, rate: float, *patiences: float) -> tuple[int, int, int]:
        """Calls at this rate, of callers with these patiences in turn: answered, late, refused."""
        self.answered = self.late = 0
        self.refused.clear()
        for _ in range(round(seconds / TICK)):
            self.ticks += 1
            self.came += rate * TICK
            while self.came >= 1.0:
                self.came -= 1.0
                self._come(patiences[self.ticks % len(patiences)])
            self._leave()
            self._work()
            if self.ticks % SWEEP == 0:
                self.admission.sweep(self.now, lambda: {"m": self.total})
        return self.answered, self.late, len(self.refused)

    def _come(self, patience: float) -> None:
        try:
            self.admission.enter("m")
        except Overloaded as error:
            self.refused.append(error)
        else:
            self.waiting.append(Call(self.now, patience))

    def _leave(self) -> None:
        for call in (*self.waiting, *(call for _, call in self.working)):
            if not call.has_left and self.now - call.came >= call.patience:
                self._give_up(call)

    def disconnect(self, share: float = 1.0) -> None:
        """A share of the waiting callers leaves now, as when a process ends that made calls."""
        callers = [call for call in self.waiting if not call.has_left]
        for call in callers[: round(len(callers) * share)]:
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        call.has_left = True
        self.late += 1
        self.admission.gave_up("m", self.now - call.came)

    def _work(self) -> None:
        for done, call in tuple(self.working):
            if done > self.ticks:
                continue
            self.working.remove((done, call))
            if call.has_left:
                self.admission.ended("m")
            else:
                self.answered += 1
                self.admission.leave("m")
                self.total = self.total[0] + 1, self.total[1] + self.now - call.came
        while self.waiting and len(self.working) < SERVERS:
            self.working.append((self.ticks + TAKES, self.waiting.popleft()))

    @property
    def lower(self) -> int | None:
        """The limit that is lower than the setting, if one is in force."""
        return self.admission.limits.get("m")


def test_three_times_the_capacity_leaves_nine_tenths_of_it_to_those_who_wait() -> None:
    for patiences in ((1.0,), (1.0, 30.0), (30.0,), (0.5,)):
        line = Line()
        line.run(5, 24, *patiences)
        answered, _, refused = line.run(60, 120, *patiences)
        assert answered >= 0.9 * 60 * 40, patiences
        assert refused >= 0.9 * 60 * 80 - 256, patiences


def test_after_an_overload_normal_load_is_served_without_a_failure() -> None:
    line = Line()
    line.run(5, 24, 1.0)
    line.run(60, 120, 1.0)
    line.run(5, 0)
    assert line.run(20, 24, 1.0)[1:] == (0, 0)


def test_callers_who_wait_longer_than_the_whole_limit_takes_keep_it() -> None:
    line = Line()
    line.run(60, 120, 30.0)
    assert line.lower is None


def test_callers_who_leave_before_a_call_can_be_answered_lower_nothing() -> None:
    for patience in (0.02, 0.15):
        line = Line()
        line.run(5, 24, 30.0)
        answered, late, refused = line.run(60, 24, 30.0, 30.0, patience)
        assert (line.lower, refused) == (None, 0), patience
        assert answered + late == pytest.approx(60 * 24, abs=8), patience


def test_callers_who_all_leave_at_once_still_leave_triton_busy() -> None:
    line = Line()
    line.run(5, 24, 30.0)
    line.run(20, 120, 0.02)
    assert line.lower is not None
    assert line.lower >= FEWEST
    assert line.run(10, 36, 30.0)[0] >= 0.9 * 360


def test_a_client_that_ends_in_the_middle_of_its_calls_lowers_nothing_for_the_others() -> None:
    line = Line()
    line.run(5, 24, 30.0)
    for pause in (4.0, 4.03, 4.06, 4.1, 4.2, 5.0) * 3:
        line.run(0.1, 300, 30.0)  # the client's calls
        line.disconnect(0.5)
        line.run(0.1, 24, 30.0)  # so that a look may lie between
        line.disconnect()
        line.run(pause, 24, 30.0)
        assert line.lower is None, pause
    assert line.run(20, 24, 30.0)[1:] == (0, 0)


def test_the_limit_rises_again_when_callers_wait_longer() -> None:
    line = Line()
    line.run(5, 24, 1.0)
    line.run(10, 120, 1.0)
    low = line.lower
    assert low is not None and 10 <= low <= 40
    line.run(400, 24, 30.0)
    assert line.lower is None


def test_the_limit_is_forgotten_when_hardly_any_call_comes() -> None:
    line = Line()
    line.run(5, 24, 1.0)
    line.run(10, 120, 1.0)
    line.run(61, 0)
    assert line.lower is None


def test_a_refusal_says_when_the_calls_in_flight_will_be_answered() -> None:
    line = Line()
    line.run(20, 120, 30.0)
    error = line.refused[-1]
    assert error.retry_after == 7  # 256 calls at 40 a second
    assert "raise the setting max_in_flight" in str(error)
    line = Line()
    line.run(20, 120, 1.0)
    assert line.refused[-1].retry_after == 1
    assert "clients disconnected" in str(line.refused[-1])
