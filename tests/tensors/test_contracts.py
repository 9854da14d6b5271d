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
    Tolerance,
    cases_from_npz,
    judge,
    write_contract,
)

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


def test_a_case_has_the_inputs_and_outputs_of_its_file():
    case = only(name="twice")
    assert case.name == "twice"
    assert case.inputs["x"].tolist() == [[1, 1]]
    assert case.outputs["y"].tolist() == [[2, 2]]


def test_an_answer_is_judged_by_the_tolerances_of_its_case_and_output():
    near = {"y": 2.05 * ONE}
    assert judge(only(), {"y": 2 * ONE}) == ""
    assert judge(only(), near).startswith("output 'y'[0,0] is 2.05, expected 2 (off by 0.05, ")
    assert judge(only(atol=0.1), near) == ""
    assert judge(only(atol=0.1, outputs={"y": {"atol": 0.01}}), near) != ""
    assert judge(only(top1=True), near) == ""
    assert judge(only(top1=False), near) != ""
    assert judge(only(outputs={"y": {"top1": 0.9}}), near) == ""


def test_a_missing_output_is_wrong_and_a_further_one_is_not():
    assert judge(only(), {"z": ONE}) == "output 'y' is missing"
    assert judge(only(), {"y": 2 * ONE, "z": ONE}) == ""


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
    for broken, said in (
        ({}, "contract.json is missing"),
        ({INDEX: b"{"}, "is not JSON"),
        ({INDEX: b"[" * 100_000}, "is not JSON"),
        (files({"file": "case-0.npz"}, format=2), "format 1"),
        (files(), "a list of 1 to 100"),
        (files(*[{"file": "case-0.npz"}] * (MOST_CASES + 1)), "a list of 1 to 100"),
        (files({}), "needs a 'file'"),
        (files({"file": "../../etc/passwd"}), "which is missing"),
        (files({"file": "case-0.npz", "atoll": 1}), "unknown field 'atoll'"),
        (files({"file": "case-0.npz", "atol": -1}), "atol cannot be -1"),
        (files({"file": "case-0.npz", "atol": 10**400}), "atol cannot be 1000"),
        (files({"file": "case-0.npz", "rtol": float("nan")}), "rtol cannot be NaN"),
        (files({"file": "case-0.npz", "rtol": True}), "rtol cannot be true"),
        (files({"file": "case-0.npz", "top1": 0}), "top1 cannot be 0"),
        (files({"file": "case-0.npz", "top1": 2}), "top1 cannot be 2"),
        (files({"file": "case-0.npz", "outputs": {"z": {}}}), "'z', which is not an output"),
        (files({"file": "case-0.npz", "outputs": {"y": 1}}), "a tolerance has only the fields"),
        (files({"file": "case-0.npz", "outputs": []}), "must be objects"),
        (files({"file": "case-0.npz", "datatypes": {"x": "FP4"}}), "datatype 'FP4'"),
        (files({"file": "a"}, **{"contract/a": npz(input__x=ONE)}), "1 inputs and 0 outputs"),
        (files({"file": "a"}, **{"contract/a": npz(x=ONE)}), "neither an input nor an output"),
        (files({"file": "a"}, **{"contract/a": b"PK"}), "contract/a is not a golden case"),
    ):
        error = refusal(Invalid, Contract.read, broken)
        assert said in str(error), broken


def test_a_users_archive_may_name_tensors_plainly_where_that_is_clear():
    data = npz(x=ONE, output__y=ONE)
    (case,) = cases_from_npz(data, inputs=["x"], outputs=["y"], tolerance=Tolerance(atol=0.5))
    assert (list(case.inputs), list(case.outputs)) == (["x"], ["y"])
    assert judge(case, {"y": 1.4 * ONE}) == ""


def test_a_users_archive_that_is_not_clear_is_refused() -> None:
    for arrays, said in (
        (
            {"x": ONE, "y": ONE, "z": ONE},
            "array 'z' is neither an input nor an output: the inputs are x, s",
        ),
        ({"s": ONE}, "an input and an output with this name. Try: name it input/s or output/s"),
        ({"x": ONE}, "1 inputs and 0 outputs"),
        ({"x": ONE, "input__x": ONE}, "input/x twice"),
    ):
        error = refusal(
            Invalid, cases_from_npz, npz(**arrays), inputs=["x", "s"], outputs=["y", "s"]
        )
        assert said in str(error), arrays
