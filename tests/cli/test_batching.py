"""`servegate batching`: the fields that flags of `set` make, and what `show` prints."""

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from admin.api.admin_scene import send
from admin.api.test_batching import admin
from control.batching.test_advice import CASES
from control.batching.watched import OFF, Scene, decide, plain
from typer.main import get_command

from serve.cli.asked import ModelReference
from serve.cli.batching.edits import Edits, edited
from serve.cli.batching.view import lines
from serve.cli.client import AdminClient
from serve.cli.main import app
from serve.cli.versions import called_number
from serve.control.batching.hints import BEGINS
from serve.core.errors import Invalid
from serve.triton.config import Configuration, parse
from serve.triton.config_revisions import fields_of, revised

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


def came(more: str) -> Configuration:
    """The configuration that a version came with."""
    return parse(more if more.startswith(HEAD) else HEAD + more)


def sent(more: str = "", present: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    """What is sent for a version that came with this, and is run with `present` fields now."""
    return edited(came(more), revised(came(more), present or {}), Edits(**said))


def after(more: str = "", present: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    """The fields that are in force then."""
    return fields_of(revised(came(more), sent(more, present, **said)))


def refused(more: str = "", **said: Any) -> Invalid:
    with pytest.raises(Invalid) as found:
        sent(more, **said)
    assert found.value.why
    return found.value


QUEUE = "dynamic_batching { default_queue_policy { max_queue_size: 3 } }"
LEVELS = (
    "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
    "priority_queue_policy { key: 2 value { max_queue_size: 1 } } }"
)
GROUP = 'instance_group { name: "g" count: 1 kind: KIND_GPU gpus: [ 1 ] host_policy: "h" }'
LIMITED = 'instance_group { count: 1 rate_limiter { resources { name: "R" count: 1 } } }'
ALL = "dynamic_batching { preferred_batch_size: [ 4 ] preserve_ordering: true } "
TWO = "instance_group { count: 1 } instance_group { count: 2 }"
GPUS = {"count": 1, "kind": "KIND_GPU", "gpus": [0, 1]}


def batching(**fields: Any) -> dict[str, Any]:
    return {"dynamic_batching": fields}


# The flags, and which fields of a version that came with this they send.
SENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("", {"largest": 16}, {"max_batch_size": 16}),
    ("", {"largest": 8}, {}),
    ("", {"largest": 0}, {"max_batch_size": None}),
    ("", {"cache": True}, {"response_cache": {"enable": True}}),
    ("response_cache { enable: true }", {"cache": False}, {"response_cache": None}),
    ("", {"dynamic": True}, {"dynamic_batching": {}}),
    (ALL, {"dynamic": False}, {"dynamic_batching": None}),
    (ALL, {"preferred": "none", "ordering": False}, {"dynamic_batching": {}}),
    (QUEUE, {"queue": "none"}, {"dynamic_batching": {}}),
    ("", {"instances": ["cpu:2"]}, {"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}),
    (TWO, {"instances": ["none"]}, {"instance_group": None}),
    ('model_warmup { name: "w" batch_size: 1 }', {"warmup": ["none"]}, {"model_warmup": None}),
    (
        "",
        {"delay": "500us", "preferred": "4,8", "ordering": True},
        batching(
            max_queue_delay_microseconds="500",
            preferred_batch_size=[4, 8],
            preserve_ordering=True,
        ),
    ),
    (
        "",
        {"levels": 3, "priority_queues": ["2:size=10", "3:action=delay,timeout=5ms"]},
        batching(
            priority_levels="3",
            default_priority_level="3",
            priority_queue_policy={
                "2": {"max_queue_size": 10},
                "3": {"timeout_action": "DELAY", "default_timeout_microseconds": "5000"},
            },
        ),
    ),
    (
        "",
        {"levels": 3, "default_level": 1},
        batching(priority_levels="3", default_priority_level="1"),
    ),
    (
        "instance_group { count: 3 }",
        {"instances": ["gpu:1@0,1", "cpu:4"]},
        {"instance_group": [GPUS, {"count": 4, "kind": "KIND_CPU"}]},
    ),
    ("", {"others": ["max_batch_size=4"]}, {"max_batch_size": 4}),
    ("", {"others": ["max_batch_size=null"]}, {"max_batch_size": None}),
    (
        "",
        {"others": ["dynamic_batching.priority_queue_policy.2.max_queue_size=7"]},
        batching(priority_queue_policy={"2": {"max_queue_size": 7}}),
    ),
    ("", {"others": ["instance_group[0].gpus=[0]"]}, {"instance_group": [{"gpus": [0]}]}),
    ("", {"others": ['response_cache={"enable": true}']}, {"response_cache": {"enable": True}}),
]


def test_flags_send_only_fields_that_differ_from_the_version() -> None:
    for config, said, wanted in SENT:
        assert sent(config, **said) == wanted, said
    assert sent(present={"max_batch_size": 16}, largest=8) == {}


def test_what_is_not_said_of_a_queue_a_level_or_a_group_stays() -> None:
    found = after(QUEUE, queue="timeout=50ms")["dynamic_batching"]["default_queue_policy"]
    assert found == {"max_queue_size": 3, "default_timeout_microseconds": "50000"}
    assert after(LEVELS, levels=0)["dynamic_batching"] == {}
    levels = {"priority_levels": "2", "default_priority_level": "1"}
    assert after(LEVELS, priority_queues=["2:none"])["dynamic_batching"] == levels
    (found,) = after(GROUP, instances=["2"])["instance_group"]
    rest = {"name": "g", "count": 2, "host_policy": "h"}
    assert found == rest | {"kind": "KIND_GPU", "gpus": [1]}
    assert after(GROUP, instances=["cpu:2"])["instance_group"] == [rest | {"kind": "KIND_CPU"}]
    assert after(LIMITED, rate_limit=["none"])["instance_group"] == [{"count": 1}]
    (found,) = after(instances=["1"], rate_limit=["R:2", "S:1:global"], rate_priority=3)[
        "instance_group"
    ]
    assert found["rate_limiter"] == {
        "resources": [{"name": "R", "count": 2}, {"name": "S", "count": 1, "global": True}],
        "priority": 3,
    }
    assert after(TWO, others=["instance_group[1].count=5"])["instance_group"][1] == {"count": 5}
    assert after(TWO, others=["instance_group[0]=null"])["instance_group"] == [{"count": 2}]


def test_warm_up_is_made_of_the_inputs_that_every_call_has() -> None:
    found = sent(warmup=["batch=8,data=random,count=2"])["model_warmup"]
    wanted = {"data_type": "TYPE_FP32", "dims": ["1", "3"], "random_data": True}
    assert found == [{"name": "batch-of-8", "batch_size": 8, "count": 2, "inputs": {"x": wanted}}]
    (shaped,) = sent(warmup=["batch=1,dims=x:7x3"])["model_warmup"]
    assert shaped["inputs"]["x"]["dims"] == ["7", "3"] and shaped["inputs"]["x"]["zero_data"]
    names = [one["name"] for one in sent(warmup=["batch=1", "batch=1"])["model_warmup"]]
    assert names == ["0-batch-of-1", "1-batch-of-1"]
    with pytest.raises(Invalid, match="inputs are unknown"):
        edited(parse(""), parse(""), Edits(warmup=["batch=1"]))


def test_sequences_change_their_strategy_and_times_and_keep_their_controls() -> None:
    found = after(SEQUENCES, sequence="oldest", candidates=32)["sequence_batching"]
    oldest = {"max_candidate_sequences": 32, "max_queue_delay_microseconds": "100"}
    assert found["oldest"] == oldest and "direct" not in found
    assert found["control_input"][0]["name"] == "s"
    assert found["max_sequence_idle_microseconds"] == "7000000"
    found = after(SEQUENCES, sequence_idle="5s", sequence_delay="1ms")["sequence_batching"]
    assert found["max_sequence_idle_microseconds"] == "5000000"
    assert found["direct"]["max_queue_delay_microseconds"] == "1000"


def test_what_cannot_be_set_is_refused_with_the_reason() -> None:
    for config, said, what in (
        (ALL, {"dynamic": False, "delay": "5ms"}, "cannot be combined"),
        ("", {"rate_limit": ["R:2"]}, "--instances"),
        ("", {"rate_priority": 1}, "--instances"),
        ("", {"warmup": ["dims=z:3"]}, "no input 'z'"),
        ("", {"sequence_idle": "5s"}, "models with sequences"),
        (SEQUENCES, {"candidates": 3}, "strategy oldest"),
        (SEQUENCES, {"sequence": "newest"}, "unknown value 'newest'"),
        (SEQUENCES, {"delay": "1ms"}, "exclude each other"),
        ("", {"others": ["backend=x"]}, "'backend' cannot be changed"),
        ("", {"others": ["max_batch_size"]}, "is not valid"),
        ("", {"others": ["=3"]}, "is not valid"),
        ("", {"others": ["dynamic_batching..x=3"]}, "is not valid"),
        ("", {"others": ["max_batch_size={"]}, "is not valid JSON"),
        ("", {"others": ["max_batch_size.x=3"]}, "is a value without fields"),
        ("", {"others": ["instance_group[3].count=3"]}, "there is no '3'"),
        ("", {"others": ["instance_group.first.count=3"]}, "there is no 'first'"),
        ("", {"others": ["dynamic_batching.speed=3"]}, "cannot be read"),
        ("", {"others": ["max_batch_size=many"]}, "cannot be read"),
        ("", {"others": ["dynamic_batching.max_queue_delay_microseconds=-1"]}, "cannot be read"),
    ):
        assert what in str(refused(config, **said)), said


def test_what_was_changed_before_stays_unless_it_is_said_or_reset() -> None:
    present = {"max_batch_size": 16, "dynamic_batching": {"preserve_ordering": True}}
    assert sent(present=present, delay="1ms") == {
        "max_batch_size": 16,
        "dynamic_batching": {"preserve_ordering": True, "max_queue_delay_microseconds": "1000"},
    }
    assert sent(present=present, reset=True) == {}
    assert sent(present=present, reset=True, delay="0") == {"dynamic_batching": {}}


def test_a_file_gives_fields_or_a_whole_configuration_and_flags_follow(tmp_path: Path) -> None:
    config = "dynamic_batching { }"
    file = tmp_path / "fields.json"
    file.write_text(json.dumps({"max_batch_size": 32, "dynamic_batching": None}))
    assert sent(config, source=file) == {"max_batch_size": 32, "dynamic_batching": None}
    assert sent(config, source=file, largest=4)["max_batch_size"] == 4
    file.write_text(json.dumps({"fields": {"max_batch_size": 32}}))
    assert sent(config, source=file) == {"max_batch_size": 32}
    whole = tmp_path / "config.pbtxt"
    whole.write_text("max_batch_size: 4 instance_group { count: 2 }")
    assert sent(config, source=whole) == {
        "max_batch_size": 4,
        "dynamic_batching": None,
        "instance_group": [{"count": 2}],
    }


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refused(source=tmp_path / "none.json").what
    for name, text, what in (
        ("a.json", "{", ""),
        ("a.json", "[1]", ""),
        ("a.pbtxt", "x: 1", ""),
        ("a.json", '{"backend": "python"}', "backend cannot be changed"),
    ):
        (tmp_path / name).write_text(text)
        assert what in refused(source=tmp_path / name).what


# --- show ----------------------------------------------------------------------------------------


FULL = OFF + (
    "dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 9 } "
    "response_cache { enable: true }"
)
_PATH = "/api/models/m/versions/{}/batching"


def shown(scene: Scene, number: int = 1, *, blocks: bool = False) -> list[str]:
    """What is printed of a version, as the admin API tells it."""
    page = send(admin(scene), "GET", _PATH.format(number)).json()
    return list(lines(page, blocks=blocks))


def from_line(found: list[str], start: str) -> list[str]:
    """What follows a line that begins so, with it, up to an empty one."""
    first = next(place for place, line in enumerate(found) if line.startswith(start))
    rest = [*found[first:], ""]
    return rest[: rest.index("")]


def test_batches_are_drawn_as_bars_with_their_times(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    scene.look({1: (1000, 5), 4: (250, 8), 8: (500, 12)}, queue=2)
    found = shown(scene)
    assert found[0] == "m@1: max_batch_size 8, on a"
    assert "  shares its configuration with: 2 (Triton name m)" in found
    assert from_line(found, "last") == [
        "last 100 s, 1 replica: 6,000 calls, 60 calls/s, 0 waiting now",
        "  a call takes 2 ms in the queue + 10.2 ms of compute = 12.2 ms in Triton",
        "  instances are busy 13% of the time; a batch has 3.4 of 8 rows (occupancy 43%); a call "
        "has 1 row",
    ]
    assert from_line(found, "batches") == [
        "batches, by rows:",
        "  1  1,000   57.1%      5 ms  ########################",
        "  4    250   14.3%      8 ms  ######",
        "  8    500   28.6%     12 ms  ############",
        "  an execution takes about 4 ms + 1 ms per row",
    ]
    assert found[-1] == "advice: none"
    assert any("█" in line for line in shown(scene, blocks=True))


def test_advice_and_hints_are_told_with_their_commands(tmp_path: Path) -> None:
    scene = plain(tmp_path, config=OFF)
    scene.look({1: (30, 10)}, queue=20)
    assert shown(scene)[-1] == "advice: too few calls so far (30 of 100)"
    tuned = {"objective": "p99<50ms", "rate": 2.0}
    decide(scene.plane, "m", {"fields": {"max_batch_size": 16}, "group": "", "tuned": tuned})
    scene.look({1: (3000, 10)}, queue=20)
    for _ in range(BEGINS):
        scene.overviews.judge()
    found = shown(scene)
    assert "  changed after the push: max_batch_size" in found
    assert "  tuned for: p99<50ms, up to 2 calls/s per replica" in found
    assert from_line(found, "hints")[1].startswith("  a replica gets 30 calls/s, and it was")
    assert from_line(found, "hints")[2] == (
        "    try: servegate batching tune m@1 --slo 'p99<50ms'  [rate-above]"
    )
    assert "    try: servegate batching set m@1 --on  [batching-off]" in from_line(found, "advice")


def test_what_is_not_known_is_told_with_the_reason(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    found = shown(scene)
    assert "no statistics yet: they need two readings of a replica" in found
    assert found[-1] == "advice: too few calls so far (0 of 100)"
    for field in ("max_batch_size", "dynamic_batching"):
        assert any(line.startswith(f"  {field}: ") for line in found)
    scene.look({})
    assert "no calls in the last 100 s" in shown(scene)
    scene.look({}, calls=200)
    no_report = "  batch sizes unknown: the backend does not report executions"
    assert no_report in shown(scene)
    unheld = shown(scene, 2)
    assert unheld[0].startswith("m@2: max_batch_size 8, not loaded: ")
    assert "no statistics: no replica has loaded this version" in unheld


def test_a_version_whose_configuration_nobody_tells_is_told_so(tmp_path: Path) -> None:
    found = shown(plain(tmp_path, config=None), 2)
    assert found[1] == (
        "  configuration unknown: it has no config.pbtxt, and no replica has loaded it"
    )


def step(**others: Any) -> dict[str, Any]:
    base = {"path": "1", "name": "net", "version": 3, "asked": "net@3", "calls": 1200, "others": 0}
    numbers = {"queue": 0.002, "compute": 0.005, "rows_per_execution": 4.0, "share": 0.7}
    return base | numbers | others


def test_an_ensemble_is_told_with_its_steps_and_what_is_not_known(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    scene.look({1: (1000, 5)})
    page = send(admin(scene), "GET", _PATH.format(1)).json()
    steps = [
        step(),
        step(path="2", asked="post@1", others=200),
        step(path="2.1", asked="gone", calls=0),
    ]
    page["parts"] = {"kind": "ensemble", "steps": steps, "limit": "what is not known"}
    found = list(lines(page, blocks=False))
    assert from_line(found, "steps") == [
        "steps:",
        "  1 net@3   70% of the total, queue 2 ms, compute 5 ms, batches of 4.0; 1,200 calls",
        "  2 post@1  70% of the total, queue 2 ms, compute 5 ms, batches of 4.0; 1,200 calls, "
        "200 other calls",
        "  2.1 gone  no calls",
        "  (what is not known)",
    ]
    assert not any(line.startswith(("advice", "batches,")) for line in found)


@pytest.mark.parametrize("rule", CASES)
def test_what_advice_suggests_can_be_run(rule: str) -> None:
    situation, text = CASES[rule]
    words = shlex.split(text.partition("Try: ")[2].rpartition(" [")[0])
    assert words[:4] == ["servegate", "batching", "set", situation.asked]
    group = get_command(app)
    for word in words[1:3]:
        group = group.commands[word]  # type: ignore[attr-defined]
    said = group.make_context("set", words[3:]).params
    names = [one.name for one in fields(Edits) if said[one.name] not in (None, [], ())]
    edits = Edits(**{name: said[name] for name in names})
    present = parse(OFF if rule == "batching-off" else FULL)
    assert edited(present, present, edits) != {}


class Model(AdminClient):
    """A gateway that knows one model: its labels, its versions, and how its calls are split."""

    def __init__(self, split: dict[str, int]) -> None:
        super().__init__("http://127.0.0.1:9")
        self._split = split

    def get(self, path: str) -> Any:
        versions = [{"version": number} for number in (1, 2, 3)]
        return {"labels": {"candidate": 3}, "versions": versions, "split": self._split}


def test_without_a_version_the_one_that_gets_the_calls_is_meant() -> None:
    most, equal = {"1": 90, "2": 10}, {"1": 50, "2": 50}
    for split, selector, number in (
        (most, "", 1),
        (equal, "", 2),
        (most, "candidate", 3),
        (most, "2", 2),
        ({}, "", 3),
    ):
        assert called_number(Model(split), ModelReference("m", selector)) == number
