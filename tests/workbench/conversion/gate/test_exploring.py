"""What a source takes is found by asking it."""

import numpy as np
import pytest
from refusals import refusal
from workbench.conversion.gate.plain_models import judge, signature, step, y_of

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.gate.families import EDGES, NUMERALS, ORDINARY
from serve.workbench.conversion.gate.input_search import explore, inputs_for
from serve.workbench.conversion.gate.probes import ordinary_families
from serve.workbench.conversion.gate.shapes import Size
from serve.workbench.conversion.report import GateStep

TEXT = signature({"ids": ("INT64", (-1, -1))}, {"y": ("FP32", (-1, 4))})
TABLE = np.random.default_rng(1).standard_normal((777, 4)).astype(np.float32)


def embedded(inputs):
    ids = inputs["ids"]
    if ids.shape[1] > 32:
        raise ValueError("longer than the positions")
    if ids.size and (ids.min() < 0 or ids.max() >= len(TABLE)):
        raise IndexError("no such id")
    return {"y": TABLE[ids].mean(axis=1)}


def test_the_last_row_of_a_table_is_found_and_lengths_that_are_too_long_are_left_out():
    reach = explore(embedded, TEXT, 0)
    assert reach.limits == {"ids": 776}
    assert len(reach.lengths) == 3 and all(max(each) <= 32 for each in reach.lengths)


def test_a_fault_far_down_in_a_table_is_seen():
    def wrong(inputs):
        y = embedded(inputs)["y"]
        return {"y": y + (inputs["ids"] > 600).any(axis=1, keepdims=True).astype(np.float32)}

    verdict = judge(embedded, wrong, TEXT)
    assert step(verdict, GateStep.NUMBERS).code == "numbers_differ"
    assert judge(embedded, embedded, TEXT).passed


def test_a_number_by_itself_stays_small_as_it_may_be_how_much_is_made():
    asked = []

    def make(inputs):
        asked.append(int(inputs["count"]))
        return {"y": np.zeros(int(inputs["count"]), dtype=np.float32)}

    count = signature({"count": ("INT32", ())}, {"y": ("FP32", (-1,))})
    assert judge(make, make, count).passed
    assert max(asked) == 16


def test_texts_that_have_to_be_numbers_are_numbers():
    parse = y_of(lambda x: np.array([float(one) for one in x], dtype=np.float32))
    words = signature({"x": ("BYTES", (-1,))}, {"y": ("FP32", (-1,))})
    assert explore(parse, words, 0).texts == NUMERALS
    assert judge(parse, parse, words).passed


def test_a_picture_that_must_have_some_size_gets_it():
    def pooled(inputs):
        if min(inputs["x"].shape[1:3]) < 32:
            raise ValueError("smaller than the window")
        return {"y": inputs["x"][:, ::32, ::32].mean(axis=(1, 2))}

    pictures = signature({"x": ("FP32", (-1, -1, -1, 3))}, {"y": ("FP32", (-1, 3))})
    reach = explore(pooled, pictures, 0)
    assert reach.lengths[0] == (32,)
    assert any(len(set(each)) > 1 for each in reach.lengths)  # height and width differ
    assert judge(pooled, pooled, pictures).passed


def test_a_source_that_lacks_memory_for_one_row_is_told_as_that():
    class ResourceExhaustedError(Exception):
        """As TensorFlow calls it."""

    def greedy(inputs):
        raise ResourceExhaustedError("Graph execution error:\n\nOOM when allocating")

    assert refusal(ConversionFailed, judge, greedy, greedy).code == "out_of_memory"


def test_a_source_that_takes_nothing_asks_for_samples():
    def never(inputs):
        raise ValueError("only on Sundays\nand a long page")

    error = refusal(ConversionFailed, judge, never, never)
    assert error.code == "samples_invalid"
    assert error.why.endswith("only on Sundays") and "--samples" in error.try_this


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT32", "FP16", "FP32", "FP64", "BYTES"])
def test_every_family_makes_every_datatype(datatype):
    of = signature({"x": (datatype, (-1, 2))}, {"y": (datatype, (-1, 2))})
    reach = explore(y_of(lambda x: x), of, 0)
    for family in (*ORDINARY, *EDGES):
        made = inputs_for(of, reach, Size(3), family, np.random.default_rng(0))["x"]
        assert made.shape == (3, 2)
        assert datatype == "BYTES" or np.isfinite(made).all()


def test_pictures_are_tried_with_pixels_as_well():
    pictures = signature({"x": ("FP32", (-1, 8, 8, 3))}, {"y": ("FP32", (-1, 3))})
    assert "pixels" in ordinary_families(pictures)
    assert "pixels" not in ordinary_families(TEXT)
