"""Generated inputs."""

import numpy as np
import pytest

from serve.core.errors import Invalid
from serve.tensors.datatypes import DATATYPES, numpy_dtype, to_raw
from serve.tensors.random_inputs import random_tensor


def test_a_random_tensor_has_the_datatype_and_can_be_sent() -> None:
    for datatype in DATATYPES:
        tensor = random_tensor(datatype, (-1, 3, -1), np.random.default_rng(0), batch=4)
        assert tensor.dtype == numpy_dtype(datatype), datatype
        assert tensor.shape == (4, 3, 1), datatype
        assert to_raw(tensor, datatype), datatype
        one, other = (random_tensor(datatype, (50,), np.random.default_rng(5)) for _ in range(2))
        assert (one == other).all(), datatype
        assert len(set(one.tolist())) > 1, datatype
    with pytest.raises(Invalid, match="FP8"):
        random_tensor("FP8", (1,), np.random.default_rng(0))


def test_numbers_are_in_a_range_that_models_meet() -> None:
    for datatype, low, high in (
        ("FP16", 0, 1),
        ("FP32", 0, 1),
        ("UINT8", 0, 256),
        ("INT8", -128, 128),
        ("INT64", 0, 100),
    ):
        values = random_tensor(datatype, (20_000,), np.random.default_rng(1)).astype(np.float64)
        assert low <= values.min() and values.max() < high, (datatype, low)
        assert values.max() - values.min() > 0.95 * (high - low), (datatype, low)


def test_texts_are_short_words():
    words = random_tensor("BYTES", (200,), np.random.default_rng(2)).tolist()
    assert all(3 <= len(word) <= 8 and word.isalpha() and word.islower() for word in words)
