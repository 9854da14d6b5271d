"""What people are told of a call: outputs, differences, and where the time went."""

import json
from typing import Any

import numpy as np
import pytest

from serve.control.tries.outputs import MOST_ROWS, MOST_VALUES, differences, leading, output_line
from serve.control.tries.records import Latency
from serve.control.tries.sides import counted, latency
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import DeclaredOutput

SPEC = TensorSpec("y", "FP32", (-1, 3))
CLASSES = DeclaredOutput("classes")
F32 = np.float32


def line(
    array: Any, datatype: str = "FP32", spec: Any = SPEC, declared: DeclaredOutput | None = None
) -> Any:
    return output_line(
        "y", {"y": array}, datatype, spec=spec, declared=declared, labels=("cat", "dog"), scores=2
    )


def test_scores_have_the_highest_of_each_row_with_labels() -> None:
    found = line(np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]], F32), declared=CLASSES)
    tops = [[(one.index, one.label) for one in row] for row in found.top]
    assert tops == [[(1, "dog"), (2, "")], [(0, "cat"), (2, "")]]
    assert found.top[0][0].value == pytest.approx(0.7)
    assert (found.min, found.max) == pytest.approx((0.1, 0.7))
    assert not found.truncated


def test_rows_beyond_those_that_fit_are_left_out() -> None:
    found = line(np.zeros((500, 3), F32), declared=CLASSES)
    assert len(found.top) == MOST_ROWS
    assert found.truncated and len(found.values) == MOST_VALUES // 3
    assert found.shape == [500, 3]


def test_the_first_part_of_an_array_has_all_its_dimensions() -> None:
    for shape in ((5000,), (2, 3000), (3, 40, 50, 60), (1, 1, 2000), (0, 5), ()):
        array = np.arange(int(np.prod(shape))).reshape(shape)
        cut = leading(array, 1000)
        assert cut.ndim == array.ndim
        assert cut.size <= 1000
        assert cut.size == array.size or cut.size > 500
        assert np.array_equal(cut, array[tuple(slice(0, n) for n in cut.shape)])


def test_numbers_that_json_does_not_have_become_null() -> None:
    found = line(np.array([[np.nan, np.inf, 2]], F32), declared=CLASSES)
    assert found.values == [[None, None, 2]]
    assert (found.min, found.max, found.mean) == (2, 2, 2)
    json.dumps([found.values, found.top[0][0].value], allow_nan=False)


def test_long_texts_are_cut() -> None:
    words = np.array([b"x" * 5000, b"\xff"], dtype=object)
    found = line(words, "BYTES", None)
    assert [len(one) for one in found.values] == [1000, 4]
    assert found.truncated and found.top == [] and found.mean is None


def test_differences_name_the_rows_whose_highest_score_is_elsewhere() -> None:
    a = {"y": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], F32)}
    b = {"y": np.array([[0.9, 0, 0], [1, 0, 0], [0, 0, 1]], F32)}
    found = differences(a, b, {"y": SPEC}, {"y": CLASSES})["y"]
    assert found.differing == [1]
    assert (found.agreement, found.max_abs) == (pytest.approx(2 / 3), 1)
    assert not found.infinite
    assert line(a["y"]).top == []
    plain = differences(a, b, {"y": SPEC}, {})["y"]
    assert (plain.equal, plain.agreement, plain.differing) == (pytest.approx(6 / 9), None, [])
    # an infinite difference is told apart from an unknown one
    a, b = {"y": np.array([[1, np.nan, 0]], F32)}, {"y": np.zeros((1, 3), F32)}
    found = differences(a, b, {"y": SPEC}, {})["y"]
    assert (found.max_abs, found.infinite, found.cosine) == (None, True, None)


def test_what_cannot_be_compared_says_why() -> None:
    a = {"y": np.zeros((1, 3), F32), "only": np.zeros(1)}
    b = {"y": np.zeros((1, 4), F32), "other": np.zeros(1)}
    found = differences(a, b, {}, {})
    assert "[1, 4]" in found["y"].refused
    assert found["only"].refused == "only A has this output"
    assert found["other"].refused == "only B has this output"


def test_texts_differ_in_their_share_of_equal_ones() -> None:
    a, b = (np.array(each, dtype=object) for each in ([b"x", b"y"], [b"x", b"z"]))
    found = differences({"y": a}, {"y": b}, {}, {})["y"]
    assert (found.equal, found.max_abs, found.agreement, found.differing) == (0.5, None, None, [])


def test_a_declared_output_is_read_and_compared_by_its_kind() -> None:
    embedding = DeclaredOutput("embedding")
    found = line(np.array([[3, 4, 0]], F32), declared=embedding)
    assert (found.kind, found.top, found.rows) == ("embedding", [], [{"size": 3, "norm": 5.0}])
    found = line(np.array([[0, 2, 1]], F32), declared=DeclaredOutput("classes", "logits"))
    assert (found.kind, found.rows, found.top[0][0].label) == ("classes", [], "dog")
    assert sum(one.value for one in found.top[0]) < 1
    a, b = {"y": np.array([[1, 0, 0]], F32)}, {"y": np.array([[0, 1, 0]], F32)}
    differs = differences(a, b, {"y": SPEC}, {"y": embedding})["y"]
    assert (differs.agreement, differs.differing) == (0.0, [0])
    assert differs.measures == {"cosine": 0.0, "min_cosine": 0.0}


# --- where the time went, told only as far as it is known -----------------------------------------


def stats(calls: int, failed: int = 0) -> dict[str, Any]:
    """Counters after so many calls, each with 1 ms in the queue and 2, 3 and 4 ms of compute."""
    parts = {"queue": 1, "compute_input": 2, "compute_infer": 3, "compute_output": 4, "success": 11}
    found = {name: {"count": calls, "ns": calls * ms * 1_000_000} for name, ms in parts.items()}
    return {"inference_stats": {**found, "fail": {"count": failed, "ns": 0}}}


def test_one_call_that_was_counted_alone_is_exact() -> None:
    found = latency(0.015, stats(7), stats(8))
    assert (found.exact, found.calls, found.round_trip) == (True, 1, 0.015)
    assert found.gateway_and_network == pytest.approx(0.004)
    parts = (found.queue, found.compute_input, found.compute_infer, found.compute_output)
    assert parts == pytest.approx((0.001, 0.002, 0.003, 0.004))


def test_with_other_calls_it_is_an_average_and_the_rest_is_not_told() -> None:
    found = latency(0.015, stats(7), stats(10))
    assert (found.exact, found.calls, found.gateway_and_network) == (False, 3, None)
    assert found.queue == pytest.approx(0.001)
    # so it is with one that failed meanwhile
    assert not latency(0.015, stats(7, failed=1), stats(8, failed=2)).exact


def test_what_was_not_counted_is_not_known() -> None:
    one, three, nine = stats(1), stats(3), stats(9)
    for before, after in ((None, None), (one, None), (None, one), (three, three), (nine, one)):
        assert latency(0.015, before, after) == Latency(round_trip=0.015)
        assert counted(before, after) == 0


def test_a_replica_that_started_anew_or_has_statistics_of_another_shape_tells_nothing() -> None:
    after = stats(8)
    after["inference_stats"]["queue"]["ns"] = 0
    assert latency(0.015, stats(7), after) == Latency(round_trip=0.015)
    for page in ({}, {"inference_stats": None}, {"inference_stats": {"queue": 3}}):
        assert latency(0.015, page, page) == Latency(round_trip=0.015)
