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
