"""Lint: every rule finds its own failing case and nothing else, and good models pass."""

import json
import time
from pathlib import Path

from serve.triton.lint import BATCHING, RULES, Diagnosis, Severity, lint

from . import lint_cases
from .lint_cases import BACKEND, CASES, FIXED, GOOD, HEAD, IO, file_of, onnx, subject


def test_every_rule_has_a_failing_case_and_every_case_a_rule() -> None:
    assert {rule.name for rule in RULES} == CASES.keys()


def test_a_failing_case_is_found_by_its_rule_alone() -> None:
    for rule, cases in CASES.items():
        for index, case in enumerate(cases):
            found = lint(case)
            assert {each.rule for each in found} == {rule}, f"{rule}, case {index}: {found}"
            assert all(each.field and each.why and each.fix for each in found), rule


def test_a_case_of_batching_is_told_in_exactly_the_words_of_the_list() -> None:
    """Each line of the list is one case, in the order of the rules and their cases."""
    told = [str(found) for rule in BATCHING for case in CASES[rule.name] for found in lint(case)]
    assert told == (Path(__file__).parent / "batching_messages.txt").read_text().splitlines()


def test_lint_runs_only_the_rules_that_are_asked_for() -> None:
    wrong = onnx('name: "other" instance_group { count: -1 }')
    assert [each.rule for each in lint(wrong, BATCHING)] == ["instance-count"]


GOOD_MODELS = [
    subject(),
    subject(None),
    subject(BACKEND, signature=FIXED),
    subject(HEAD, signature=None),
    onnx("version_policy { all { } }"),
    onnx("dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 9 }"),
    onnx('default_model_filename: "net.onnx"', files=("1/net.onnx",)),
    subject(
        files=("1/model.onnx/model.onnx", "1/model.onnx/w"), signature=file_of(external_data=["w"])
    ),
    subject('backend: "python"', files=("1/model.py",), signature=None),
    subject(None, files=("1/model.plan",), signature=file_of([], [], "plan")),
    lint_cases.warmup(
        lint_cases.sample(data='input_data_file: "x.raw"'),
        files=(*lint_cases.FILES, "warmup/x.raw"),
    ),
    lint_cases.group("kind: KIND_GPU", gpus=1),
    lint_cases.queue(
        "default_timeout_microseconds: 90000 allow_timeout_override: true max_queue_size: 64",
        "max_queue_delay_microseconds: 500",
    ),
    lint_cases.prioritised(
        "timeout_action: DELAY default_timeout_microseconds: 100",
        "max_queue_delay_microseconds: 500",
    ),
    lint_cases.oldest("max_candidate_sequences: 8 max_queue_delay_microseconds: 500"),
    lint_cases.flavoured(
        {
            "name": "plan-sm90",
            "file": "model.p.plan",
            "backend": "tensorrt",
            "needs": {"compute_capability": ["9.0"], "tensorrt": ["10.13.2"]},
        },
        {
            "name": "onnx+trt",
            "needs": {"gpu": True},
            "config": lint_cases.trt(trt_engine_cache_enable="1", trt_profile_min_shapes="a/x:1x3"),
        },
        files=(*lint_cases.FILES, lint_cases.PLAN),
        signatures={"plan-sm90": lint_cases.HEADER},
        plans={"plan-sm90": {"tensorrt": "10.13.2.6", "compute_capability": "9.0"}},
    ),
    lint_cases.planned(
        {"compute_capability": ["8.0+"], "tensorrt": ["10"]},
        tensorrt="10.13.2.6",
        compute_capability="9.0",
        hardware="ampere+",
    ),
    subject(
        HEAD + IO.replace("dims: [ 3 ]", "dims: [ 1 ] reshape { shape: [ ] }", 1),
        signature=file_of([lint_cases.ModelTensor("x", "FP32", (-1,))]),
    ),
    subject(signature=file_of([lint_cases.ModelTensor("x", "FP32", (-1, -1))])),
    *lint_cases.GOOD_ENSEMBLES,
]


def test_a_good_model_has_no_findings() -> None:
    for index, good in enumerate(GOOD_MODELS):
        assert lint(good) == (), f"model {index}: {good}"


def test_the_file_that_a_reader_knows_lies_in_the_version() -> None:
    for config, files, readable in (
        (GOOD, ("1/model.onnx",), "model.onnx"),
        (GOOD, ("1/model.onnx/model.onnx", "1/model.onnx/w"), "model.onnx/model.onnx"),
        (GOOD + 'default_model_filename: "net.onnx"', ("1/net.onnx",), "net.onnx"),
        (GOOD + 'default_model_filename: "../x.onnx"', ("1/model.onnx", "x.onnx"), ""),
        (None, ("1/model.plan",), "model.plan"),
        (None, ("1/model.savedmodel/saved_model.pb",), "model.savedmodel"),
        (None, ("1/saved_model.pb", "1/variables/variables.index"), "."),
        ('backend: "python"', ("1/model.py", "1/model.onnx"), ""),
        (GOOD, ("1/other.onnx", "model.onnx"), ""),
    ):
        assert subject(config, files=files).readable == readable, (config, files)


def test_errors_come_before_warnings() -> None:
    found = lint(onnx('name: "other" instance_group { count: -1 }'))
    assert [each.severity for each in found] == [Severity.ERROR, Severity.WARNING]


def test_a_diagnosis_is_one_sentence_and_plain_json() -> None:
    one = Diagnosis("gpu-number", Severity.ERROR, "instance_group[0].gpus", "there is none", "none")
    assert str(one) == "instance_group[0].gpus: there is none. Fix: none [gpu-number]"
    assert json.loads(json.dumps(one.to_json()))["severity"] == "error"


def test_every_rule_says_what_it_means_and_what_triton_does() -> None:
    for rule in RULES:
        assert rule.meaning.endswith("."), rule.name
        assert len((rule.check.__doc__ or "").strip().splitlines()) >= 3, rule.name


def test_thousands_of_steps_in_a_row_are_looked_at_in_seconds() -> None:
    steps = [lint_cases.step("a", [("x", f"t{at}")], [("y", f"t{at + 1}")]) for at in range(1200)]
    given = lint_cases.ENSEMBLE_HEAD.replace('"x"', '"t0"', 1).replace('"y"', '"t1200"', 1)
    for ordered in (steps, steps[::-1]):
        chain = lint_cases.ensemble(*ordered, head=given)
        began = time.process_time()
        lint(chain)
        assert time.process_time() - began < 4


def test_what_is_wrong_with_a_flavour_alone_names_it() -> None:
    missing = lint_cases.flavour(file="model.f.onnx")
    (found,) = lint(missing)
    assert found.field == "flavour 'f': default_model_filename"
