"""The history as columns."""

from serve.control.live.samples import columns


def tree(seconds: float, **more):
    return {"seconds": seconds, "period": 1.0, "hints": [], **more}


def test_every_column_has_a_value_for_each_second() -> None:
    made = columns(
        [
            tree(1.0, models={}, replicas={"a": {"queue": 0.1, "gpus": {}}}),
            tree(2.0, models={"m": {"calls": 5.0}}, replicas={}),
            tree(3.0, models={"m": {"calls": 7.0}}, replicas={"a": {"gpus": {"G": {"power": 9}}}}),
        ]
    )
    assert made["seconds"] == [1.0, 2.0, 3.0]
    assert made["models"] == {"m": {"calls": [None, 5.0, 7.0]}}
    assert made["replicas"] == {
        "a": {"queue": [0.1, None, None], "gpus": {"G": {"power": [None, None, 9]}}}
    }


def test_the_hints_are_those_of_the_last_second() -> None:
    earlier, now = {"what": "earlier"}, {"what": "now"}
    made = columns([tree(1.0) | {"hints": [earlier]}, tree(2.0) | {"hints": [now]}])
    assert made["hints"] == [now]


def test_a_history_of_nothing_has_all_columns() -> None:
    made = columns([])
    assert (made["seconds"], made["gateway"]["p99"], made["gateway"]["codes"]) == ([], [], {})
    assert (made["models"], made["replicas"], made["hints"]) == ({}, {}, [])
