"""Admission: a finite number of calls per model, counted by the loads."""

import pytest

from serve.core.errors import Overloaded
from serve.proxy.admission import Admission
from serve.proxy.loads import Loads


def test_a_model_at_its_limit_refuses_the_next_call_and_counts_it_not() -> None:
    loads = Loads()
    admission = Admission(loads, limit=2)
    admission.enter("m")
    admission.enter("m")
    with pytest.raises(Overloaded, match="limit of 2"):
        admission.enter("m")
    assert loads.models.get("m", 0) == 2


def test_a_call_that_leaves_makes_room() -> None:
    admission = Admission(Loads(), limit=1)
    admission.enter("m")
    admission.leave("m")
    admission.enter("m")


def test_a_busy_model_does_not_starve_the_others() -> None:
    loads = Loads()
    admission = Admission(loads, limit=1)
    admission.enter("busy")
    admission.enter("other")
    assert loads.total == 2


def test_loads_keep_replicas_and_models_apart() -> None:
    loads = Loads()
    Admission(loads, limit=9).enter("x")
    loads.entered("x")
    loads.entered("x")
    loads.left("x")
    loads.entered("x")
    assert (loads.models.get("x", 0), loads.on_replica("x"), loads.total) == (1, 2, 1)


def test_what_never_began_is_not_in_flight() -> None:
    loads = Loads()
    assert (loads.models.get("m", 0), loads.on_replica("a"), loads.total) == (0, 0, 0)


def test_what_is_over_leaves_nothing_behind() -> None:
    loads = Loads()
    admission = Admission(loads, limit=2)
    for _ in range(2):
        loads.entered("a")
        admission.enter("m")
    for _ in range(2):
        loads.left("a")
        admission.leave("m")
    assert repr(loads) == "<Loads replicas={} models={}>"
