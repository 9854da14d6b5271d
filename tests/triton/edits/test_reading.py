"""How the values of `servegate batching set` are read, and what is said of those that cannot be."""

from refusals import refusal

from serve.core.errors import Invalid
from serve.triton.edits import values
from serve.triton.edits.values import InstanceGroup, WarmupSample


def test_a_time_is_read_in_microseconds() -> None:
    for text, microseconds in (
        ("0", 0),
        ("500us", 500),
        ("500µs", 500),
        ("2ms", 2000),
        ("0.5ms", 500),
        ("1.5s", 1_500_000),
        ("1m", 60_000_000),
        ("2h", 7_200_000_000),
        (" 2 ms ", 2000),
    ):
        assert values.microseconds(text, "--delay") == microseconds, text


def test_what_is_no_time_is_refused_with_an_example() -> None:
    for text in ("", "soon", "-1ms", "5 days", "0.5us", "1e3us", "nan", "1ms2"):
        error = refusal(Invalid, values.microseconds, text, "--delay")
        assert "--delay 500us" in error.try_this, text
    unclear = refusal(Invalid, values.microseconds, "5", "--delay")
    assert unclear.what == "--delay: '5' has no unit"
    assert unclear.why == "it could be microseconds, milliseconds or seconds"
    assert unclear.try_this == "--delay 5us, --delay 5ms or --delay 5s"


def test_sizes_are_numbers_with_commas_or_none() -> None:
    assert values.sizes("4, 8", "--preferred") == [4, 8]
    assert values.sizes("none", "--preferred") == []
    wrong = refusal(Invalid, values.sizes, "four", "--preferred")
    assert "'four' is not a number" in str(wrong)


def test_a_queue_policy_is_what_is_said_of_it() -> None:
    whole = values.policy("size=100,timeout=50ms,action=delay,override=yes", "--queue")
    assert whole == {
        "max_queue_size": 100,
        "default_timeout_microseconds": 50_000,
        "timeout_action": "DELAY",
        "allow_timeout_override": True,
    }
    assert values.policy("size=100", "--queue") == {"max_queue_size": 100}
    assert values.policy("none", "--queue") is None
    assert values.prioritised("2:size=1", "--priority-queue") == (2, {"max_queue_size": 1})
    assert values.prioritised("2:none", "--priority-queue") == (2, None)


def test_what_is_no_queue_policy_is_refused() -> None:
    for text, what in (
        ("size", "--queue: 'size' has no value"),
        ("length=3", "--queue: unknown name 'length'"),
        ("size=-1", "--queue size: '-1' is not a number"),
        ("timeout=50", "--queue timeout: '50' has no unit"),
        ("action=wait", "--queue action: unknown value 'wait'"),
        ("override=maybe", "--queue override: unknown value 'maybe'"),
        ("", "--queue: '' has no value"),
    ):
        error = refusal(Invalid, values.policy, text, "--queue")
        assert error.what == what, text
        assert error.why and error.try_this, text


def test_instances_are_a_number_and_where_they_run() -> None:
    for text, group in (
        ("2", InstanceGroup(2)),
        ("cpu:2", InstanceGroup(2, "KIND_CPU")),
        ("gpu:1@0,1", InstanceGroup(1, "KIND_GPU", (0, 1))),
        ("1@3", InstanceGroup(1, "KIND_GPU", (3,))),
        ("auto:1", InstanceGroup(1, "KIND_AUTO")),
    ):
        assert values.group(text, "--instances") == group, text
    for text in ("", "cpu", "tpu:1", "gpu:1@", "two", "-1", "gpu:1@a"):
        error = refusal(Invalid, values.group, text, "--instances")
        assert error.why and error.try_this, text


def test_a_resource_has_a_name_a_count_and_perhaps_all_of_the_triton() -> None:
    assert values.resource("R:2", "--rate-limit") == {"name": "R", "count": 2}
    whole = {"name": "R", "count": 2, "global": True}
    assert values.resource("R:2:global", "--rate-limit") == whole
    for wrong in ("R", "R:x", ":1", "R:1:all"):
        refusal(Invalid, values.resource, wrong, "--rate-limit")


def test_a_sample_says_its_batch_its_data_and_how_often() -> None:
    assert values.sample("batch=8,data=random,count=2", "--warmup") == WarmupSample(
        8, "random_data", 2
    )
    shaped = values.sample("batch=1,dims=x:3x224", "--warmup")
    assert shaped.dims == {"x": [3, 224]}
    for wrong in ("batch", "batch=x", "data=ones", "size=8", "dims=x:3xy"):
        refusal(Invalid, values.sample, wrong, "--warmup")
