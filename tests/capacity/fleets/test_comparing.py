"""Comparing: everybody meets the same calls, and is told beside the oracle."""

from serve.capacity.fleets.comparing import ORACLE, Scene, compare, variants
from serve.capacity.fleets.seen import Server
from serve.capacity.service import Service

SCENE = Scene(Server(Service(0.04, 0.01), largest=8, limit=0.5), mean=100.0, seconds=600.0)


def test_each_scaler_has_one_usual_parameter() -> None:
    usual = [each.scaler for each in variants() if each.is_usual]
    assert sorted(usual) == ["hpa-calls", "hpa-utilisation", "kpa", "ray", "servegate"]


def test_all_are_told_beside_the_oracle() -> None:
    usual = [each for each in variants() if each.is_usual]
    found = list(compare(SCENE, "ramp", 1, usual))
    assert [each.scaler for each in found] == [ORACLE, *(each.scaler for each in usual)]
    assert found[0].cost == 1.0
    assert all(0 <= each.late <= 1 and each.cost > 0.3 for each in found)
    assert found == list(compare(SCENE, "ramp", 1, usual))
