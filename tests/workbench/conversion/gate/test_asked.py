"""What the user asks for decides: samples, tolerances, a precision, golden cases."""

from dataclasses import replace

import numpy as np
from refusals import refusal
from workbench.conversion.gate.plain_models import (
    DENSE,
    WEIGHTS,
    bent,
    code,
    dense,
    judge,
    off_by,
    samples_of,
    step,
    y_of,
)

from serve.core.errors import ConversionFailed
from serve.tensors.contracts import Contract, write_contract
from serve.tensors.contracts import judge as judge_case
from serve.tensors.expected_outputs import Tolerance
from serve.workbench.conversion.report import GateStep, StepResult
from serve.workbench.conversion.request import Precision

IN_FP16 = StepResult(GateStep.PRECISION, True, "in FP16")


def test_golden_cases_are_the_users_samples_first_and_zeros_last():
    given = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    cases = judge(dense, dense, samples=samples_of(given), golden=2).cases
    assert [case.name for case in cases] == ["sample 0", "sample 1", "zeros"]
    assert np.array_equal(cases[1].inputs["x"], given[1:2])


def test_golden_cases_are_written_and_read_again_and_the_model_answers_them():
    cases = Contract.read(write_contract(judge(dense, dense).cases)).cases
    assert len(cases) == 5
    assert not any(judge_case(case, dense(case.inputs)) for case in cases)
    assert all(judge_case(case, off_by(0.1)(case.inputs)) for case in cases)


def test_the_users_samples_are_judged_too():
    wrong_at_nine = y_of(lambda x: bent(x) + (x[:, :1] == 9).astype(np.float32))
    given = np.full((40, 4), 0.5, dtype=np.float32)
    assert judge(dense, wrong_at_nine, samples=samples_of(given)).passed
    given[37] = 9
    assert code(judge(dense, wrong_at_nine, samples=samples_of(given))) == "numbers_differ"


def test_samples_that_the_source_does_not_take_are_the_users_matter():
    def picky(inputs):
        if (inputs["x"] == 9).any():
            raise ValueError("no nines")
        return dense(inputs)

    given = samples_of(np.full((1, 4), 9, dtype=np.float32))
    error = refusal(ConversionFailed, judge, picky, picky, samples=given)
    assert error.code == "samples_invalid" and "no nines" in error.why


def test_a_tolerance_of_the_user_is_the_one_that_counts_and_one_for_no_output_is_told():
    for tolerances, right in (
        ({"": Tolerance(atol=0.2)}, True),
        ({"y": Tolerance(atol=0.2)}, True),
        ({"y": Tolerance(atol=1e-6, rtol=0)}, False),
        ({"other": Tolerance(atol=0.2)}, False),
    ):
        assert judge(dense, off_by(0.1), tolerances=tolerances).passed is right
    assert any("'other'" in one for one in judge(dense, dense, tolerances=tolerances).warnings)


def test_a_tolerance_of_the_user_has_no_room_for_a_coarse_precision():
    asked = {"precision": Precision.FP16, "check": lambda: IN_FP16}
    assert judge(dense, off_by(0.002), **asked).passed
    narrow = {"": Tolerance(atol=1e-9, rtol=0)}
    verdict = judge(dense, off_by(0.002), tolerances=narrow, **asked)
    assert code(verdict) == "numbers_differ"
    assert "the limit 1e-09" in step(verdict, GateStep.NUMBERS).summary


def test_a_share_of_winners_stands_for_values_when_the_user_says_so():
    top1 = {"": Tolerance(top1=0.9)}
    assert judge(dense, off_by(0.1), tolerances=top1).passed
    turned = y_of(lambda x: bent(x)[:, ::-1])
    assert code(judge(dense, turned, tolerances=top1)) == "numbers_differ"


@y_of
def half(x):
    """The same, in FP16."""
    return np.tanh(x.astype(np.float16) @ WEIGHTS.astype(np.float16)).astype(np.float32)


def test_fp16_may_round_and_may_not_be_wrong():
    assert code(judge(dense, half)) == "numbers_differ"
    asked = {"precision": Precision.FP16, "check": lambda: IN_FP16}
    assert judge(dense, half, **asked).passed
    assert code(judge(dense, off_by(0.1), **asked)) == "numbers_differ"


def test_the_step_of_precision_decides_as_well():
    lost = StepResult(GateStep.PRECISION, False, "all in FP32", "precision_missing")
    verdict = judge(dense, dense, precision=Precision.FP16, check=lambda: lost)
    assert code(verdict) == "precision_missing"


def test_a_source_that_computes_in_fp16_is_held_to_that():
    verdict = judge(half, y_of(lambda x: bent(x.astype(np.float16).astype(np.float32))))
    assert verdict.passed
    assert step(verdict, GateStep.DETERMINISM).facts["arithmetic"] == "fp16"
    assert code(judge(half, off_by(0.1))) == "numbers_differ"
    assert step(judge(dense, dense), GateStep.DETERMINISM).facts["arithmetic"] == "fp32"


def test_the_signature_may_say_in_what_the_source_computes():
    of = replace(DENSE, facts={"arithmetic": "fp16"})
    rounded = y_of(lambda x: bent(x) * np.float32(1.002))
    assert judge(dense, rounded, of).passed
    assert code(judge(dense, rounded)) == "numbers_differ"
    assert code(judge(dense, off_by(0.1), of)) == "numbers_differ"


def test_int8_without_labels_keeps_the_winners_of_the_users_samples():
    narrow = y_of(lambda x: 0 * bent(x) + np.float32([0.50, 0.46, 0.04]))
    turned = y_of(lambda x: 0 * bent(x) + np.float32([0.46, 0.50, 0.04]))
    given = samples_of(np.ones((50, 4), dtype=np.float32))
    verdict = judge(narrow, turned, samples=given, precision=Precision.INT8)
    assert code(verdict) == "numbers_differ"
    assert "is the same in 0.00% of 50 rows" in step(verdict, GateStep.NUMBERS).summary
