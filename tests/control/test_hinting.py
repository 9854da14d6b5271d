"""Hints in samples: numbers of pools as columns, and the sentences that hold now."""

from math import nan

from control.live.advised import NOON, Advised, model, told, tune

from serve.capacity.scaling.signals import Code, Reason
from serve.control.hint_samples import MOST_POOLS, advised
from serve.control.live.samples import columns


def test_a_pool_is_told_with_its_numbers_and_its_models() -> None:
    assert advised([told(utilization=0.8)], (), NOON + 2.0).pools == {
        "default": {
            "desired": 3,
            "ready": 2,
            "starting": 0,
            "demand": 2.31,
            "utilization": 0.8,
            "age": 2.0,
            "models": {
                "digits": {"demand": 2.31, "calls": 290.0, "waiting": 12.0, "capacity": 131.0}
            },
        }
    }


def test_a_hint_is_told_in_words_with_all_its_reasons_and_a_command_where_there_is_one() -> None:
    reasons = (Reason(Code.UNKNOWN, "too little was executed"), Reason(Code.LEAST, "at least 3"))
    scaling, batching = advised(
        [told(reasons=reasons, confidence="low")], [tune("m", 3)], NOON
    ).hints
    assert scaling == {
        "kind": "scaling",
        "about": "default",
        "what": "3 replicas, 1 more than now",
        "confidence": "low",
        "reasons": [
            {"code": "capacity-unknown", "text": "too little was executed"},
            {"code": "least", "text": "at least 3"},
        ],
        "fix": "",
    }
    assert (batching["kind"], batching["about"]) == ("batching", "m@3")
    assert batching["fix"] == "servegate batching tune m@3"
    assert batching["reasons"] == [{"code": "rate-above", "text": "10 calls/s come"}]


def test_of_very_many_pools_the_largest_are_told() -> None:
    many = [told(f"p{number:03}", desired=number) for number in range(MOST_POOLS + 10)]
    found = list(advised(many, (), NOON).pools)
    assert found == [f"p{number:03}" for number in range(10, MOST_POOLS + 10)]


async def test_a_sample_has_what_stands_on_the_board() -> None:
    scene = Advised()
    before = await scene.sample()
    scene.board.put([told(demand=nan)])
    scene.batching = (tune(),)
    after = await scene.sample()
    assert (before["pools"], before["hints"]) == ({}, [])
    pool = after["pools"]["default"]
    assert (pool["desired"], pool["demand"]) == (3, None)
    assert [one["kind"] for one in after["hints"]] == ["scaling", "batching"]


async def test_a_pools_numbers_become_columns_and_its_words_do_not() -> None:
    scene = Advised()
    samples = [await scene.sample()]
    for desired in (3, 4):
        scene.board.put([told(desired=desired, models=(model(),))])
        samples.append(await scene.sample())
    made = columns(samples)
    assert made["pools"]["default"]["desired"] == [None, 3, 4]
    assert made["pools"]["default"]["models"]["digits"]["calls"] == [None, 290.0, 290.0]
    assert [one["what"] for one in made["hints"]] == ["4 replicas, 2 more than now"]
