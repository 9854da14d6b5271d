"""Edits: which fields the flags of `servegate batching set` make of a configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve.cli.batching.edits import Edits, edited
from serve.core.errors import Invalid
from serve.triton.config import parse
from serve.triton.revising import fields_of, revised

HEAD = (
    'backend: "onnxruntime" max_batch_size: 8 '
    'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] } '
    'input { name: "o" data_type: TYPE_FP32 dims: [ 3 ] optional: true } '
    'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } '
)
SEQUENCES = HEAD + (
    "sequence_batching { max_sequence_idle_microseconds: 7000000 "
    'control_input { name: "s" control { kind: CONTROL_SEQUENCE_START '
    "fp32_false_true: [ 0, 1 ] } } direct { max_queue_delay_microseconds: 100 "
    "minimum_slot_utilization: 0.5 } }"
)


def sent(more: str = "", present: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    """What is sent for a version that came with this, and is run with `present` fields now."""
    base = parse(more if more.startswith(HEAD) else HEAD + more)
    return edited(base, revised(base, present or {}), Edits(**said))


def after(more: str = "", present: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    """The fields that are in force then."""
    base = parse(more if more.startswith(HEAD) else HEAD + more)
    return fields_of(revised(base, sent(more, present, **said)))


def refused(more: str = "", **said: Any) -> Invalid:
    with pytest.raises(Invalid) as found:
        sent(more, **said)
    assert found.value.why
    return found.value


def test_only_what_differs_from_the_version_is_sent() -> None:
    assert sent(largest=16) == {"max_batch_size": 16}
    assert sent(largest=8) == {}
    assert sent(present={"max_batch_size": 16}, largest=8) == {}
    assert sent(largest=0) == {"max_batch_size": None}


def test_what_was_changed_before_stays_unless_it_is_said() -> None:
    present = {"max_batch_size": 16, "dynamic_batching": {"preserve_ordering": True}}
    assert sent(present=present, delay="1ms") == {
        "max_batch_size": 16,
        "dynamic_batching": {"preserve_ordering": True, "max_queue_delay_microseconds": "1000"},
    }


def test_a_reset_sends_no_field() -> None:
    assert sent(present={"max_batch_size": 16}, reset=True) == {}
    assert sent(present={"max_batch_size": 16}, reset=True, delay="0") == {"dynamic_batching": {}}


def test_saying_something_of_dynamic_batching_turns_it_on() -> None:
    assert sent(dynamic=True) == {"dynamic_batching": {}}
    found = sent(delay="500us", preferred="4,8", ordering=True)["dynamic_batching"]
    assert found == {
        "max_queue_delay_microseconds": "500",
        "preferred_batch_size": [4, 8],
        "preserve_ordering": True,
    }


def test_dynamic_batching_is_turned_off_with_all_that_is_said_of_it() -> None:
    config = "dynamic_batching { max_queue_delay_microseconds: 9 }"
    assert sent(config, dynamic=False) == {"dynamic_batching": None}
    assert "leaves nothing" in refused(config, dynamic=False, delay="5ms").what


def test_parts_of_dynamic_batching_can_be_taken_away() -> None:
    config = (
        "dynamic_batching { preferred_batch_size: [ 4 ] preserve_ordering: true "
        "default_queue_policy { max_queue_size: 3 } }"
    )
    found = sent(config, preferred="none", ordering=False, queue="none")
    assert found == {"dynamic_batching": {}}


def test_a_queue_policy_keeps_what_is_not_said_of_it() -> None:
    config = "dynamic_batching { default_queue_policy { max_queue_size: 3 } }"
    found = after(config, queue="timeout=50ms")["dynamic_batching"]["default_queue_policy"]
    assert found == {"max_queue_size": 3, "default_timeout_microseconds": "50000"}


def test_priorities_come_with_a_default_and_with_policies() -> None:
    found = sent(levels=3, priority_queues=["2:size=10", "3:action=delay,timeout=5ms"])
    assert found["dynamic_batching"] == {
        "priority_levels": "3",
        "default_priority_level": "3",
        "priority_queue_policy": {
            "2": {"max_queue_size": 10},
            "3": {"timeout_action": "DELAY", "default_timeout_microseconds": "5000"},
        },
    }
    assert sent(levels=3, default_level=1)["dynamic_batching"]["default_priority_level"] == "1"


def test_without_levels_there_is_no_word_of_priorities() -> None:
    config = (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
        "priority_queue_policy { key: 2 value { max_queue_size: 1 } } }"
    )
    assert after(config, levels=0)["dynamic_batching"] == {}
    assert after(config, priority_queues=["2:none"])["dynamic_batching"] == {
        "priority_levels": "2",
        "default_priority_level": "1",
    }


def test_instances_take_the_place_of_those_that_are_there() -> None:
    assert sent(instances=["cpu:2"]) == {"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
    found = sent("instance_group { count: 3 }", instances=["gpu:1@0,1", "cpu:4"])
    assert found["instance_group"] == [
        {"count": 1, "kind": "KIND_GPU", "gpus": [0, 1]},
        {"count": 4, "kind": "KIND_CPU"},
    ]
    assert sent("instance_group { count: 3 }", instances=["none"]) == {"instance_group": None}


def test_another_number_of_instances_leaves_the_rest_of_their_group() -> None:
    config = 'instance_group { name: "g" count: 1 kind: KIND_GPU gpus: [ 1 ] host_policy: "h" }'
    (found,) = after(config, instances=["2"])["instance_group"]
    assert found == {
        "name": "g",
        "count": 2,
        "kind": "KIND_GPU",
        "gpus": [1],
        "host_policy": "h",
    }
    (found,) = after(config, instances=["cpu:2"])["instance_group"]
    assert found == {"name": "g", "count": 2, "kind": "KIND_CPU", "host_policy": "h"}


def test_a_rate_limiter_belongs_to_instances() -> None:
    (found,) = after(instances=["1"], rate_limit=["R:2", "S:1:global"], rate_priority=3)[
        "instance_group"
    ]
    assert found["rate_limiter"] == {
        "resources": [{"name": "R", "count": 2}, {"name": "S", "count": 1, "global": True}],
        "priority": 3,
    }
    config = 'instance_group { count: 1 rate_limiter { resources { name: "R" count: 1 } } }'
    assert after(config, rate_limit=["none"])["instance_group"] == [{"count": 1}]
    assert "--instances" in refused(rate_limit=["R:2"]).try_this
    assert "--instances" in refused(rate_priority=1).try_this


def test_the_response_cache_is_turned_on_and_off() -> None:
    assert sent(cache=True) == {"response_cache": {"enable": True}}
    assert sent("response_cache { enable: true }", cache=False) == {"response_cache": None}


def test_warm_up_is_made_of_the_inputs_that_every_call_has() -> None:
    found = sent(warmup=["batch=8,data=random,count=2"])["model_warmup"]
    wanted = {"data_type": "TYPE_FP32", "dims": ["1", "3"], "random_data": True}
    assert found == [{"name": "batch-of-8", "batch_size": 8, "count": 2, "inputs": {"x": wanted}}]
    (shaped,) = sent(warmup=["batch=1,dims=x:7x3"])["model_warmup"]
    assert shaped["inputs"]["x"]["dims"] == ["7", "3"] and shaped["inputs"]["x"]["zero_data"]
    assert [one["name"] for one in sent(warmup=["batch=1", "batch=1"])["model_warmup"]] == [
        "0-batch-of-1",
        "1-batch-of-1",
    ]


def test_warm_up_is_taken_away_and_refused_where_inputs_are_not_known() -> None:
    assert sent('model_warmup { name: "w" batch_size: 1 }', warmup=["none"]) == {
        "model_warmup": None
    }
    assert "no input 'z'" in refused(warmup=["dims=z:3"]).what
    with pytest.raises(Invalid, match="inputs are not known"):
        edited(parse(""), parse(""), Edits(warmup=["batch=1"]))


def test_sequences_change_their_strategy_and_keep_their_controls() -> None:
    found = after(SEQUENCES, sequence="oldest", candidates=32)["sequence_batching"]
    assert found["oldest"] == {
        "max_candidate_sequences": 32,
        "max_queue_delay_microseconds": "100",
    }
    assert "direct" not in found
    assert found["control_input"][0]["name"] == "s"
    assert found["max_sequence_idle_microseconds"] == "7000000"


def test_sequences_change_their_times() -> None:
    found = after(SEQUENCES, sequence_idle="5s", sequence_delay="1ms")["sequence_batching"]
    assert found["max_sequence_idle_microseconds"] == "5000000"
    assert found["direct"]["max_queue_delay_microseconds"] == "1000"


def test_what_is_about_sequences_needs_them() -> None:
    assert "models of sequences" in refused(sequence_idle="5s").what
    assert "strategy oldest" in refused(SEQUENCES, candidates=3).what
    assert "not known" in refused(SEQUENCES, sequence="newest").what
    assert "exclude each other" in refused(SEQUENCES, delay="1ms").what


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("max_batch_size=4", {"max_batch_size": 4}),
        ("max_batch_size=null", {"max_batch_size": None}),
        (
            "dynamic_batching.default_queue_policy.max_queue_size=7",
            {"dynamic_batching": {"default_queue_policy": {"max_queue_size": 7}}},
        ),
        (
            "dynamic_batching.priority_queue_policy.2.max_queue_size=7",
            {"dynamic_batching": {"priority_queue_policy": {"2": {"max_queue_size": 7}}}},
        ),
        ("instance_group[0].kind=KIND_CPU", {"instance_group": [{"kind": "KIND_CPU"}]}),
        ('instance_group=[{"count": 2}]', {"instance_group": [{"count": 2}]}),
        ("instance_group[0].gpus=[0]", {"instance_group": [{"gpus": [0]}]}),
        ('response_cache={"enable": true}', {"response_cache": {"enable": True}}),
    ],
)
def test_any_field_is_set_by_its_path(field: str, wanted: dict[str, Any]) -> None:
    assert sent(others=[field]) == wanted


def test_a_field_in_a_list_is_changed_and_removed_by_its_number() -> None:
    config = "instance_group { count: 1 } instance_group { count: 2 }"
    found = after(config, others=["instance_group[1].count=5"])["instance_group"]
    assert found == [{"count": 1}, {"count": 5}]
    assert after(config, others=["instance_group[0]=null"])["instance_group"] == [{"count": 2}]


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("backend=x", "'backend' cannot be changed"),
        ("input[0].name=z", "'input' cannot be changed"),
        ("max_batch_size", "sets nothing"),
        ("=3", "sets nothing"),
        ("dynamic_batching..x=3", "sets nothing"),
        ("max_batch_size={", "is no JSON"),
        ("max_batch_size.x=3", "leads into a value"),
        ("instance_group[3].count=3", "there is no '3'"),
        ("instance_group.first.count=3", "there is no 'first'"),
        ("dynamic_batching.speed=3", "the configuration cannot be read"),
        ("max_batch_size=many", "the configuration cannot be read"),
        ("dynamic_batching.max_queue_delay_microseconds=-1", "cannot be read"),
    ],
)
def test_a_field_that_cannot_be_set_is_refused(field: str, what: str) -> None:
    assert what in refused(others=[field]).what


def test_a_file_of_fields_is_taken_and_flags_come_after_it(tmp_path: Path) -> None:
    file = tmp_path / "fields.json"
    file.write_text(json.dumps({"max_batch_size": 32, "dynamic_batching": None}))
    config = "dynamic_batching { }"
    assert sent(config, source=file) == {"max_batch_size": 32, "dynamic_batching": None}
    assert sent(config, source=file, largest=4)["max_batch_size"] == 4
    file.write_text(json.dumps({"fields": {"max_batch_size": 32}}))
    assert sent(config, source=file) == {"max_batch_size": 32}


def test_a_configuration_is_taken_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text("max_batch_size: 4 instance_group { count: 2 }")
    found = sent("dynamic_batching { }", source=file)
    assert found == {
        "max_batch_size": 4,
        "dynamic_batching": None,
        "instance_group": [{"count": 2}],
    }


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("a.json", "[1]"), ("a.pbtxt", "x: 1")]
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert refused(source=tmp_path / name).why


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(source=tmp_path / "none.json").what


def test_a_field_that_cannot_be_changed_in_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"backend": "python"}')
    assert "backend cannot be changed" in refused(source=tmp_path / "a.json").what
