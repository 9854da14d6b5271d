"""Large documents: what they weigh, and nested numbers that are read without their lists."""

import json
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serve.core.errors import BadRequest
from serve.tensors.tfserving_json import (
    PredictBody,
    document_of,
    numbers_inputs,
    predict_inputs,
    signature_name,
)
from serve.tensors.tfserving_numbers import SLICE, weigh
from serve.tensors.tfserving_tensors import LARGE, Port, ServingSignature

MEANT = b" " * LARGE  # makes a document a large one
WIDE = " " * (SLICE * 2 // 3)  # a slice does not take two of them


def takes(datatype: str) -> ServingSignature:
    return ServingSignature((Port("x", datatype, (-1,)),), ())


def both(body: bytes, signature: ServingSignature) -> list[PredictBody | str]:
    """What the usual way makes of a document, and what is made of it without lists."""
    found: list[PredictBody | str] = []
    weighed = weigh(body + MEANT)
    for read in (
        lambda: predict_inputs(document_of(body), signature),
        lambda: numbers_inputs(body + MEANT, weighed, signature),
    ):
        try:
            found.append(read())
        except BadRequest as error:
            found.append(error.what)
    return found


NESTS = st.recursive(
    st.one_of(st.integers(-9, 999), st.floats(width=32)),
    lambda inner: st.tuples(inner, st.integers(1, 4)).map(lambda one: [one[0]] * one[1]),
    max_leaves=3,
).filter(lambda value: isinstance(value, list))


@given(NESTS, st.sampled_from(["instances", "inputs"]), st.sampled_from(["FP32", "FP64", "INT16"]))
def test_nested_numbers_are_the_same_tensor_without_their_lists(
    nest: Any, key: str, datatype: str
) -> None:
    body = json.dumps({key: nest}).encode()
    assert weigh(body + MEANT).numbers is not None
    usual, lean = both(body, takes(datatype))
    assert usual == lean


@given(st.text("[[]],,1 2.-eN\n", max_size=14), st.integers(0, 12))
@settings(max_examples=200)
def test_what_is_not_nested_numbers_is_never_taken_for_them(text: str, at: int) -> None:
    start = '{"instances":[[1,2],[3,4]]}'
    cut = 14 + min(at, 11)
    body = (start[:cut] + text + start[cut:]).encode()
    if weigh(body + MEANT).numbers is not None:
        usual, lean = both(body, takes("FP32"))
        assert usual == lean or (isinstance(usual, str) and isinstance(lean, str))


def test_the_shape_is_that_of_regular_lists() -> None:
    for text, shape in (
        *(("[1,2]", (2,)), ("[[1],[2],[3]]", (3, 1)), ("[[[1,2,3],[4,5,6]]]", (1, 2, 3))),
        (f"[[1,{WIDE}2],{WIDE}[3,4]]", (2, 2)),
        (f"[[[1]{WIDE * 4}],[[2]]]", None),  # a slice has an end
        ("[NaN,-Infinity]", (2,)),
        ("[[1,2]3]", (1, 2)),  # and its numbers cannot be read
        *(("[]", None), ("[[],[]]", None), ("[[1],[]]", None), ("[[1,2],[3]]", None)),
        *(("[1,[2]]", None), ('["1"]', None), ("[true]", None), ("[{}]", None)),
        ("[" * 33 + "1" + "]" * 33, None),
    ):
        found = weigh(f'{{"instances":{text}}}'.encode() + MEANT)
        assert (found.numbers.shape if found.numbers else None) == shape, text


def test_a_signature_may_stand_before_or_behind() -> None:
    for text, name in (
        ('{"instances":[1]}', ""),
        ('{"signature_name":"a","inputs":[1]}', "a"),
        (' { "inputs" : [1] , "signature_name" : "a]" } ', None),
        (' { "inputs" : [1] , "signature_name" : "b" } ', "b"),
        ('{"signature_name":"a","inputs":[1],"signature_name":"b"}', None),
        ('{"inputs":[1],"instances":[1]}', None),
        ('{"inputs":[1]} more', None),
        ('{"inputs":{"x":[1]}}', None),
    ):
        found = weigh(text.encode() + MEANT)
        assert (found.name if found.numbers else None) == name, text
        if name is not None:
            assert signature_name(document_of(text.encode())) == name


def test_a_number_that_does_not_fit_is_named_with_its_row() -> None:
    for values in (["1", "2.5"], ["1", "300"], ["-1", "1"], ["1", "1e999"]):
        for datatype in ("INT32", "BOOL", "BYTES", "UINT8"):
            usual, lean = both(
                f'{{"instances":[[{"],[".join(values)}]]}}'.encode(), takes(datatype)
            )
            assert usual == lean, (datatype, values)


def test_a_document_takes_no_more_memory_than_it_weighs() -> None:
    for kind in (
        *(b"[0.12345678,0.12345678],", b"1,", b"[1],", b"[],", b"[[[[[]]]]],", b"null,"),
        *(b'"abc",', "\U0001f600".join(['"', '",']).encode(), b'"' + b"a" * 200_000 + b'",'),
        *(b'{"a":1.5,"b":[2.5]},', b"{},"),
    ):
        count = 100_000 // len(kind) + 1
        body = b'{"instances":[' + kind * count + kind[:-1] + b"]}" + MEANT
        weighed = weigh(body)
        tracemalloc.start()
        try:
            if weighed.numbers:
                held: Any = numbers_inputs(body, weighed, takes("FP64"))
            else:
                held = document_of(body)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held and peak <= weighed.weight, kind[:40]
