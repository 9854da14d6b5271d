"""What settings say of machines."""

from pathlib import Path

import pytest

from serve.core.errors import Invalid
from serve.core.flavours import Machine
from serve.settings import Settings, load


def settings(*facts: str) -> Settings:
    return load({"machine_facts": list(facts)}, {}, Path("/nonexistent")).settings


def test_a_replica_has_the_facts_of_its_pool_and_before_them_its_own() -> None:
    given = settings(
        "a100.compute_capability=8.0", "a100.tensorrt=10.13.2", "odd.one.tensorrt=10.9.0"
    )
    assert given.machine("any", "a100") == Machine("8.0", "10.13.2", gpu=True)
    assert given.machine("odd.one", "a100") == Machine("8.0", "10.9.0", gpu=True)
    assert given.machine("any", "default") == given.machine("quarantine") == Machine()


@pytest.mark.parametrize("fact", ["gpu=true", "a100", "a100.gpu", "a100.colour=red", "a.gpu=1"])
def test_what_is_no_fact_is_refused_at_the_start(fact: str) -> None:
    with pytest.raises(Invalid):
        settings(fact)
