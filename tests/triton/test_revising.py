"""Revised configurations: which fields may be changed, and whether a Triton runs them."""

from typing import Any

import pytest
from loops import in_loop
from refusals import refusal

from serve.core.errors import Invalid
from serve.core.replicas import Replica
from serve.triton.config import of_message, parse
from serve.triton.config_revisions import fields_of, is_in_force, revised
from serve.triton.control import TritonControl

from .conftest import BareTritonFactory
from .onnx_models import ONE_INSTANCE, Model, config, identity

BASE = parse('backend: "onnxruntime"\nmax_batch_size: 8\ndynamic_batching { }\n')
WARM = {"x": {"data_type": "TYPE_FP32", "dims": [4], "zero_data": True}}
DIFFERENT: tuple[dict[str, Any], ...] = (
    {},
    {"max_batch_size": 16},
    {"dynamic_batching": {}},
    {"dynamic_batching": {"max_queue_delay_microseconds": 500}},
    {"dynamic_batching": {"preferred_batch_size": [4, 8], "preserve_ordering": True}},
    {"dynamic_batching": {"priority_levels": 2, "default_priority_level": 1}},
    {"instance_group": [{"count": 1}]},
    {"instance_group": [{"count": 3, "kind": "KIND_CPU"}]},
    {"model_warmup": [{"name": "w", "batch_size": 1, "inputs": WARM}]},
    {"sequence_batching": {}},
    {"sequence_batching": {"oldest": {"max_candidate_sequences": 4}}},
)


def test_a_field_takes_the_place_of_the_whole_one_and_null_removes_it() -> None:
    full = revised(BASE, {"dynamic_batching": {"preserve_ordering": True}})
    assert fields_of(full) == {"max_batch_size": 8, "dynamic_batching": {"preserve_ordering": True}}
    assert fields_of(revised(full, {"dynamic_batching": None})) == {"max_batch_size": 8}
    assert fields_of(BASE) == {"max_batch_size": 8, "dynamic_batching": {}}


def test_what_cannot_be_changed_or_read_is_invalid() -> None:
    for fields, said in (
        ({"platform": "x", "input": []}, "input, platform cannot be changed"),
        ({"sequence_batching": {}}, "dynamic_batching and sequence_batching exclude each other"),
        ({"dynamic_batching": {"no_such_field": 1}}, "no_such_field"),
        ({"max_batch_size": "many"}, "cannot be read"),
        ({"instance_group": {"count": 1}}, "cannot be read"),
    ):
        assert said in str(refusal(Invalid, revised, BASE, fields)), fields


@pytest.mark.triton
@pytest.mark.slow
@in_loop
async def test_a_triton_is_known_to_run_a_configuration_as_it_completes_it_and_no_other(
    bare_triton_factory: BareTritonFactory,
) -> None:
    triton = bare_triton_factory()
    text = config("x FP32 [4]", "y FP32 [4]").replace(ONE_INSTANCE, "")
    Model({1: identity("FP32", "batch", 4)}, text).write(triton.repository / "m")
    own = [revised(parse(text), fields) for fields in DIFFERENT]
    host, _, port = triton.grpc.partition(":")
    control = TritonControl(Replica("bare", host, 0, int(port), 0), timeout=10)
    for number, one in enumerate(own):
        await control.load("m", one.for_load([1]))
        told = of_message(await control.config("m"))
        runs = [at for at, other in enumerate(own) if is_in_force(other, told)]
        assert runs == [number], (DIFFERENT[number], fields_of(told))
    await control.close()
