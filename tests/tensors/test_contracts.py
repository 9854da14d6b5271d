"""Contracts: their files, and what the answers to their cases are found to be."""

import io
import json

import numpy as np
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.contracts import (
    INDEX,
    MOST_CASES,
    Case,
    Contract,
    cases_from_npz,
    judge,
    write_contract,
)
from serve.tensors.expected_outputs import NOTHING_SAID, Tolerance, judge_output

ONE = np.ones((1, 2), np.float32)


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{name.replace("__", "/"): array for name, array in arrays.items()})
    return file.getvalue()


def files(*entries, format=1, **more) -> dict[str, bytes]:
    """A contract with these entries and one file, case-0.npz, in which y is twice x."""
    index = json.dumps({"format": format, "cases": list(entries)}).encode()
    case = npz(input__x=ONE, output__y=2 * ONE)
    return {INDEX: index, "contract/case-0.npz": case} | more


def only(**said) -> Case:
    (case,) = Contract.read(files({"file": "case-0.npz", **said})).cases
    return case


def test_an_answer_is_judged_by_the_tolerances_of_its_case_and_output():
    right, near = {"y": 2 * ONE}, {"y": 2.05 * ONE}
    assert judge(only(), right) == judge(only(), right | {"z": ONE}) == ""
    assert judge(only(), {"z": ONE}) == "output 'y' is missing"
    assert judge(only(), near).startswith("output 'y'[0,0] is 2.05, expected 2 (off by 0.05, ")
    assert judge(only(atol=0.1), near) == ""
    assert judge(only(atol=0.1, outputs={"y": {"atol": 0.01}}), near) != ""
    assert judge(only(top1=True), near) == ""
    assert judge(only(top1=False), near) != ""
    assert judge(only(outputs={"y": {"top1": 0.9}}), near) == ""


def test_what_is_written_is_read_as_it_was():
    case = Case(
        {"x": ONE, "serving/text:0": np.array([b"a"], object)},
        {"y": ONE},
        "all",
        Tolerance(rtol=0.5),
        {"y": Tolerance(top1=1.0)},
        {"x": "BF16"},
    )
    written = write_contract([case, case])
    assert sorted(written) == ["contract/case-0.npz", "contract/case-1.npz", INDEX]
    assert written == write_contract([case, case])
    read, _ = Contract.read(written).cases
    assert (read.name, read.tolerance, read.tolerances) == ("all", case.tolerance, case.tolerances)
    assert dict(read.datatypes) == {"x": "BF16"}
    assert read.inputs["serving/text:0"].tolist() == [b"a"]
    assert judge(read, {"y": ONE}) == ""


def test_a_broken_contract_says_what_is_wrong() -> None:
    case = {"file": "case-0.npz"}
    for broken, said in (
        ({}, "contract.json is missing"),
        ({INDEX: b"{"}, "is not JSON"),
        ({INDEX: b"[" * 100_000}, "is not JSON"),
        (files(case, format=2), "format 1"),
        (files(), "a list of 1 to 100"),
        (files(*[case] * (MOST_CASES + 1)), "a list of 1 to 100"),
        (files({}), "needs a 'file'"),
        (files({"file": "../../etc/passwd"}), "which is missing"),
        (files({"file": "a"}, **{"contract/a": npz(input__x=ONE)}), "1 inputs and 0 outputs"),
        (files({"file": "a"}, **{"contract/a": npz(x=ONE)}), "neither an input nor an output"),
        (files({"file": "a"}, **{"contract/a": b"PK"}), "contract/a is not a golden case"),
    ):
        assert said in str(refusal(Invalid, Contract.read, broken)), broken
    for wrong, said in (
        ({"atoll": 1}, "unknown field 'atoll'"),
        ({"atol": -1}, "atol cannot be -1"),
        ({"atol": 10**400}, "atol cannot be 1000"),
        ({"rtol": float("nan")}, "rtol cannot be NaN"),
        ({"rtol": True}, "rtol cannot be true"),
        ({"top1": 0}, "top1 cannot be 0"),
        ({"top1": 2}, "top1 cannot be 2"),
        ({"outputs": {"z": {}}}, "'z', which is not an output"),
        ({"outputs": {"y": 1}}, "a tolerance has only the fields"),
        ({"outputs": []}, "must be objects"),
        ({"datatypes": {"x": "FP4"}}, "datatype 'FP4'"),
    ):
        assert said in str(refusal(Invalid, Contract.read, files(case | wrong))), wrong


def test_a_users_archive_may_name_tensors_plainly_where_that_is_clear() -> None:
    data = npz(x=ONE, output__y=ONE)
    (case,) = cases_from_npz(data, inputs=["x"], outputs=["y"], tolerance=Tolerance(atol=0.5))
    assert (list(case.inputs), list(case.outputs)) == (["x"], ["y"])
    assert judge(case, {"y": 1.4 * ONE}) == ""
    neither = "array 'z' is neither an input nor an output: the inputs are x, s"
    both = "an input and an output with this name. Try: name it input/s or output/s"
    for arrays, said in (
        ({"x": ONE, "y": ONE, "z": ONE}, neither),
        ({"s": ONE}, both),
        ({"x": ONE}, "1 inputs and 0 outputs"),
        ({"x": ONE, "input__x": ONE}, "input/x twice"),
    ):
        ports = {"inputs": ["x", "s"], "outputs": ["y", "s"]}
        assert said in str(refusal(Invalid, cases_from_npz, npz(**arrays), **ports)), arrays


# --- one output -----------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


def floats(*values):
    return np.array(values, np.float32)


def why(got, expected, own=NOTHING_SAID, general=NOTHING_SAID):
    return judge_output("y", got, expected, own, general)


def test_floats_may_be_off_by_the_absolute_and_the_relative_tolerance():
    assert why(floats(0, 100), floats(0.00009, 100.09)) == ""
    assert why(floats(0.0002), floats(0)) != ""
    assert why(floats(0.0002), floats(0), general=Tolerance(atol=0.001)) == ""
    assert why(floats(90), floats(100), general=Tolerance(rtol=0.1)) == ""


def test_the_worst_element_is_told_with_its_place_unless_it_is_a_scalar():
    expected = np.zeros((4, 8), np.float32)
    got = expected.copy()
    got[3, 7], expected[3, 7], got[0, 0] = 0.91, 0.12, 0.5
    assert why(got, expected, general=Tolerance(atol=0.001, rtol=0.0)) == (
        "output 'y'[3,7] is 0.91, expected 0.12 (off by 0.79, allowed 0.001)"
    )
    scalar = why(np.ones((), np.float32), np.zeros((), np.float32))
    assert scalar.startswith("output 'y' is 1, expected 0 (off by 1, ")


def test_what_is_not_finite_has_to_be_the_same() -> None:
    for got, expected in ((NAN, 1), (1, NAN), (INF, 1), (1, INF), (-INF, INF), (NAN, INF)):
        loose = Tolerance(atol=1e9, rtol=1.0)
        assert why(floats(got), floats(expected), general=loose) == (
            f"output 'y'[0] is {float(got):.6g}, expected {float(expected):.6g}"
        ), got
        assert why(floats(got), floats(got)) == "", got


def test_shape_and_datatype_have_to_match():
    assert why(floats(1), floats(1, 2)) == "output 'y' has the shape [1], expected [2]"
    assert why(floats(1), np.array([1])) == "output 'y' is FP32, expected INT64"


def test_whole_numbers_have_to_be_equal_unless_the_output_has_a_tolerance_of_its_own():
    got, expected = np.array([1, 5003]), np.array([1, 5000])
    said = "output 'y'[1] is 5003, expected 5000"
    assert why(got, expected, general=Tolerance(rtol=0.1, top1=1.0)) == said
    assert why(got, expected, own=Tolerance(atol=3, rtol=0)) == ""
    assert why(got, expected, own=Tolerance(atol=2, rtol=0)).startswith(said)
    assert why(np.array([True]), np.array([False])) == "output 'y'[0] is True, expected False"


def test_texts_have_to_be_equal():
    got, expected = np.array([b"a", b"\xff"], object), np.array([b"a", b"b"], object)
    assert why(got, expected) == "output 'y'[1] is '\\\\xff', expected 'b'"
    assert why(expected, expected, own=Tolerance(top1=1.0)) == ""


def test_with_top1_only_the_place_of_the_highest_score_counts():
    got, expected = floats([0.1, 0.9], [0.6, 0.4]), floats([0.4, 0.6], [0.4, 0.6])
    assert why(got, expected, general=Tolerance(top1=0.5)) == ""
    assert why(got, expected, general=Tolerance(top1=0.6)) == (
        "output 'y' has the expected top class in 0.5 of the rows, 0.6 are required"
    )
    strict = Tolerance(top1=1.0)
    assert why(got[0], expected[0], general=strict) == ""
    assert why(got[1], expected[1], general=strict) != ""
    # With a tolerance as well, both have to hold.
    got, expected = got[:1], expected[:1]
    assert why(got, expected, general=Tolerance(atol=0.1, top1=1.0)).startswith("output 'y'[0,")
    assert why(got, expected, general=Tolerance(atol=0.31, top1=1.0)) == ""
    # A NaN wins no row, and an output without rows of scores is compared by its values.
    assert why(floats([NAN, 0.9]), floats([0.9, 0.1]), general=strict) == "output 'y'[0,0] is nan"
    single = why(floats([1], [2]), floats([1], [3]), general=strict)
    assert single.startswith("output 'y'[1,0] is 2, expected 3")


def test_empty_outputs_are_right():
    empty = np.zeros((0, 4), np.float32)
    assert why(empty, empty) == why(empty, empty, general=Tolerance(top1=1.0)) == ""
