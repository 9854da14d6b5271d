"""Where the time goes in a model that is made of others."""

from collections.abc import Mapping

import pytest
from control.batching.situations import Sizes, counted

from serve.control.batching.steps import (
    BLS_LIMIT,
    BLS_UNNAMED,
    ENSEMBLE_LIMIT,
    CalledModel,
    EnsembleSteps,
    parts_of,
)
from serve.control.batching.windows import CountWindow
from serve.triton.config import Configuration, parse
from serve.triton.model_counters import Counters

PLAIN = parse('backend: "onnxruntime"')


def ensemble(*steps: str) -> Configuration:
    """Of these steps, as `NAME` or `NAME@V`."""
    texts = []
    for step in steps:
        name, _, version = step.partition("@")
        texts.append(f'step {{ model_name: "{name}" model_version: {version or -1} }}')
    return parse(f'platform: "ensemble" ensemble_scheduling {{ {" ".join(texts)} }}')


def window(sizes: Sizes, queue: float = 0.0) -> CountWindow:
    return CountWindow(counted(sizes, queue=queue), {"a": 100.0})


def of_calls(calls: int, milliseconds: float) -> CountWindow:
    """An ensemble, which executes nothing itself."""
    return CountWindow(Counters(calls=calls, whole=int(calls * milliseconds * 1e6)), {"a": 100.0})


def told(
    configuration: Configuration,
    whole: CountWindow,
    known: Mapping[str, Configuration],
    windows: Mapping[str, CountWindow],
) -> EnsembleSteps:
    """With models by their name in Triton, each of which has version 3."""

    def find(name: str, version: int) -> CalledModel | None:
        if name not in known:
            return None
        assert version in (3, -1)
        return CalledModel(name, 3, f"{name.partition('--')[0]}@3", known[name])

    found = parts_of(configuration, whole, find, lambda name, _: windows.get(name, CountWindow()))
    assert found is not None
    return found


def test_each_step_of_an_ensemble_is_told_with_its_share_of_the_whole() -> None:
    found = told(
        ensemble("pre--0123abcd@3", "net@3"),
        of_calls(1000, 10),
        {"pre--0123abcd": PLAIN, "net": PLAIN},
        {"pre--0123abcd": window({1: (1000, 1)}, 1), "net": window({4: (250, 5)}, 2)},
    )
    assert (found.kind, found.limit) == ("ensemble", ENSEMBLE_LIMIT)
    assert [(one.path, one.asked, one.name, one.version) for one in found.steps] == [
        ("1", "pre@3", "pre--0123abcd", 3),
        ("2", "net@3", "net", 3),
    ]
    first, second = found.steps
    assert (first.queue, first.compute, first.share) == pytest.approx((0.001, 0.001, 0.2))
    assert (second.share, second.rows_per_execution) == (pytest.approx(0.7), 4.0)
    assert (second.calls, second.others) == (1000, 0)


def test_calls_of_others_are_told_apart_from_those_of_the_ensemble() -> None:
    windows = {"net": window({1: (350, 5)})}
    (step,) = told(ensemble("net@3"), of_calls(100, 10), {"net": PLAIN}, windows).steps
    assert (step.calls, step.others) == (350, 250)
    # a model that is two steps is called twice for each call
    steps = told(ensemble("net@3", "net@3"), of_calls(100, 10), {"net": PLAIN}, windows).steps
    assert [(one.path, one.calls, one.others) for one in steps] == [
        ("1", 350, 150),
        ("2", 350, 150),
    ]


def test_the_steps_of_an_ensemble_within_an_ensemble_follow_it() -> None:
    inner = ensemble("net@3", "post@3")
    found = told(
        ensemble("pre@3", "inner@3"),
        of_calls(10, 20),
        {"pre": PLAIN, "inner": inner, "net": PLAIN, "post": PLAIN},
        {"inner": of_calls(10, 15), "net": window({1: (10, 12)})},
    )
    named = [f"{one.path} {one.asked}" for one in found.steps]
    assert named == ["1 pre@3", "2 inner@3", "2.1 net@3", "2.2 post@3"]
    assert found.steps[1].share == pytest.approx(0.75)
    assert found.steps[2].share == pytest.approx(0.6)
    assert (found.steps[3].calls, found.steps[3].share) == (0, None)


def test_the_newest_is_meant_where_a_step_names_no_version_and_an_unknown_one_is_named() -> None:
    (step,) = told(ensemble("net"), of_calls(1, 1), {"net": PLAIN}, {}).steps
    assert (step.asked, step.version) == ("net@3", 3)
    (step,) = told(ensemble("gone@7"), of_calls(1, 1), {}, {}).steps
    assert (step.asked, step.version, step.calls) == ("gone", 7, 0)


def test_an_ensemble_that_leads_back_to_itself_ends() -> None:
    itself = ensemble("m@3", "m@3")
    assert len(told(itself, of_calls(1, 1), {"m": itself}, {}).steps) == 200


def test_a_model_that_names_what_its_code_calls_is_told_with_them() -> None:
    named = parse(
        'backend: "python" parameters { key: "bls_composing_models" '
        'value: { string_value: "net, post" } }'
    )
    known, windows = {"net": PLAIN, "post": PLAIN}, {"net": window({1: (50, 5)})}
    found = told(named, window({1: (10, 20)}), known, windows)
    assert (found.kind, found.limit) == ("bls", BLS_LIMIT)
    assert [(one.path, one.asked, one.calls, one.others) for one in found.steps] == [
        ("1", "net@3", 50, None),
        ("2", "post@3", 0, None),
    ]


def test_a_model_of_the_python_backend_that_names_none_is_told_how_and_others_have_none() -> None:
    found = told(parse('backend: "python"'), window({1: (10, 20)}), {}, {})
    assert (found.steps, found.limit) == ((), BLS_UNNAMED)
    assert parts_of(PLAIN, CountWindow(), lambda *_: None, lambda *_: CountWindow()) is None
