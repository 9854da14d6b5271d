"""What the user brings is read with the model's datatypes, or refused with the reason."""

import numpy as np
import pytest
from refusals import refusal
from workbench.conversion.gate.plain_models import signature

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.gate import calibration, read_labelled, read_samples

TWO = signature({"x": ("FP32", (-1, 2)), "ids": ("INT64", (-1,))}, {"y": ("FP32", (-1, 3))})


def archive(tmp_path, **arrays):
    path = tmp_path / "samples.npz"
    np.savez(path, **arrays)
    return path


def refused(read, path, of=TWO):
    error = refusal(ConversionFailed, read, path, of)
    assert error.code == "samples_invalid"
    return error.why


def test_samples_get_the_datatypes_of_the_model_and_come_in_calls_of_a_size(tmp_path):
    path = archive(tmp_path, x=np.ones((5, 2)), ids=np.arange(5, dtype=np.int32))
    samples = read_samples(path, TWO)
    assert samples.count == 5
    assert (samples.arrays["x"].dtype, samples.arrays["ids"].dtype) == (np.float32, np.int64)
    assert [call["ids"].tolist() for call in samples.calls(2)] == [[0, 1], [2, 3], [4]]
    assert samples.count_calls(2) == 3


def test_an_input_with_a_fixed_first_dimension_takes_so_many_rows_for_each_sample(tmp_path):
    pairs = signature({"x": ("FP32", (2, 3))}, {"y": ("FP32", (2,))})
    samples = read_samples(archive(tmp_path, x=np.zeros((8, 3))), pairs)
    assert samples.count == 4
    assert [call["x"].shape for call in samples.calls(32)] == [(2, 3)] * 4


def test_an_input_without_dimensions_is_the_same_for_all_samples(tmp_path):
    scaled = signature({"x": ("FP32", (-1, 3)), "factor": ("FP32", ())}, {"y": ("FP32", (-1,))})
    path = archive(tmp_path, x=np.zeros((4, 3)), factor=np.float32(2))
    samples = read_samples(path, scaled)
    assert samples.count == 4
    assert all(call["factor"] == 2 for call in samples.calls(32))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.ones((5, 2))}, "lacks ids"),
        ({"x": np.ones((5, 2)), "ids": np.arange(5), "z": np.ones(5)}, "also has z"),
        ({"x": np.ones((5, 2)), "ids": np.arange(4)}, "different numbers of samples"),
        ({"x": np.ones((5, 3)), "ids": np.arange(5)}, "'x' has shape [5, 3]"),
        ({"x": np.ones((0, 2)), "ids": np.arange(0)}, "no samples"),
        ({"x": np.ones((1, 2)), "ids": np.array([0.5])}, "'ids' has values"),
        ({"x": np.array([["a", "b"]]), "ids": np.arange(1)}, "'x' contains text"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path, arrays, said):
    assert said in refused(read_samples, archive(tmp_path, **arrays))


def test_a_file_that_is_none_and_a_pickle_are_refused(tmp_path):
    path = tmp_path / "samples.npz"
    path.write_bytes(b"PK\x03\x04 and no more")
    assert "NPZ" in refused(read_samples, path)
    assert refused(read_samples, tmp_path / "missing.npz")
    pickled = np.array([{"code": 1}], dtype=object)
    assert refused(read_samples, archive(tmp_path, x=pickled, ids=np.arange(1)))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "no array 'labels'"),
        (np.arange(4), "for 5 samples"),
        (np.linspace(0, 1, 5), "not integers"),
        (np.array(["a"] * 5), "not integers"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels, said):
    more = {} if labels is None else {"labels": labels}
    path = archive(tmp_path, x=np.ones((5, 2)), ids=np.arange(5), **more)
    assert said in refused(read_labelled, path)


def test_calibration_without_samples_draws_ids_that_every_table_has():
    drawn = calibration(None, TWO, seed=0)
    assert {int(one) for call in drawn for one in call["ids"]} == {0, 1}
    assert not np.array_equal(drawn[0]["x"], drawn[2]["x"])


def test_calibration_with_the_source_reaches_over_the_table():
    def lookup(inputs):
        if (inputs["ids"] >= 50).any():
            raise ValueError("out of the table")
        return {"y": np.zeros((len(inputs["ids"]), 3), dtype=np.float32)}

    drawn = calibration(None, TWO, seed=0, source=lookup)
    assert 30 < max(int(call["ids"].max()) for call in drawn) < 50
