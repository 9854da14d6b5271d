"""Setups and ModelConfig: there and back, with everything else as it was."""

import pytest
from refusals import refusal

from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.workbench.tuning.setups import (
    fields_of_setup,
    flags_of_setup,
    json_of,
    normal,
    setup_of,
    tunable,
)

POLICY = {"timeout_action": "REJECT"}
CONFIG = {
    "max_batch_size": 8,
    "dynamic_batching": {
        "preferred_batch_size": [4, 8],
        "max_queue_delay_microseconds": "500",
        "default_queue_policy": POLICY,
    },
    "instance_group": [{"name": "m_0", "count": 2, "kind": "KIND_CPU"}],
}


GPUS = [{"count": 2, "kind": "KIND_GPU", "gpus": [0, 1]}, {"count": 1, "kind": "KIND_CPU"}]
WHOLE_BATCH = {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [8]}}


def test_a_configuration_is_read_as_a_setup():
    assert setup_of(CONFIG) == BatchSetup(8, 2, delay=500e-6, preferred=(4, 8))
    assert setup_of({}) == BatchSetup(0, 1, batches=False)
    once_for_each_gpu = setup_of({"instance_group": GPUS})
    assert once_for_each_gpu == BatchSetup(0, 5, batches=False)
    assert setup_of(WHOLE_BATCH) == BatchSetup(8)  # Triton fills in the preferred size


CACHE = {"response_cache": {"enable": True}}
THREE = {"instance_group": [{"count": 3, "kind": "KIND_CPU"}]}
LATER = {"default_queue_policy": POLICY, "max_queue_delay_microseconds": 2000}


@pytest.mark.parametrize(
    ("setup", "override", "fields"),
    [
        (setup_of(CONFIG), {}, {}),
        (BatchSetup(8, 2, batches=False), {}, {"dynamic_batching": None}),
        (BatchSetup(8, 3, delay=500e-6, preferred=(4, 8)), CACHE, CACHE | THREE),
        (
            BatchSetup(16, 2, delay=0.002),
            {},
            {"max_batch_size": 16, "dynamic_batching": LATER},
        ),
    ],
)
def test_fields_say_only_what_has_to_differ(setup, override, fields):
    assert fields_of_setup(setup, CONFIG, override) == fields


def test_the_same_change_is_told_as_options_of_set():
    assert flags_of_setup(BatchSetup(16, 1, delay=0.002), CONFIG) == (
        *("--max-batch-size", "16", "--delay", "2000us", "--preferred", "none"),
        *("--instances", "1"),
    )
    assert flags_of_setup(BatchSetup(8, 2, batches=False), CONFIG) == ("--off",)
    plain = {"max_batch_size": 8}
    assert flags_of_setup(BatchSetup(8, preferred=(4,)), plain) == ("--on", "--preferred", "4")


def test_what_triton_tells_is_read_without_what_says_nothing():
    told = {"max_batch_size": 4, "dynamic_batching": {"preserve_ordering": False}, "new": 1}
    assert normal(told) == {"max_batch_size": 4, "dynamic_batching": {}}


def test_what_cannot_be_tuned_says_why():
    for config, why in (
        ({"sequence_batching": {}}, "calls of a sequence depend on each other"),
        ({"ensemble_scheduling": {"step": []}}, "not the ensemble itself"),
        ({"model_transaction_policy": {"decoupled": True}}, "is decoupled"),
    ):
        assert why in str(refusal(Invalid, tunable, "m", config))


def test_a_text_is_read_with_the_names_of_config_pbtxt():
    assert json_of("max_batch_size: 8\ndynamic_batching { }") == {
        "max_batch_size": 8,
        "dynamic_batching": {},
    }
