"""Gates: what can be asked, what is known, and who passes."""

import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.statistics.gates import JudgedGate, judge, parse_gate, parse_gates


def test_gates_are_read():
    for text, of, sign, limit in (
        ("accuracy(b)>=0.95", "accuracy(b)", ">=", 0.95),
        (" accuracy( b ).low >= 0.9 ", "accuracy(b).low", ">=", 0.9),
        ("accuracy(a)>95%", "accuracy(a)", ">", 0.95),
        ("agreement>=0.97", "agreement", ">=", 0.97),
        ("drop<=0.5pp", "drop", "<=", 0.005),
        ("drop.high<1pp", "drop.high", "<", 0.01),
        ("p99(b)<20ms", "p99(b)", "<", 20.0),
        ("p50(a)<0.5s", "p50(a)", "<", 500.0),
        ("failed(b)<=0", "failed(b)", "<=", 0.0),
        ("mcnemar>0.05", "mcnemar", ">", 0.05),
        ("rmse(b)<1.5", "rmse(b)", "<", 1.5),
    ):
        gate = parse_gate(text, two=True)
        assert (gate.of, gate.sign, gate.text) == (of, sign, text.strip())
        assert gate.limit == pytest.approx(limit)
    assert parse_gate("accuracy>=0.9", two=False).of == "accuracy(a)"


def test_gates_that_cannot_be_judged_say_what_is_known():
    for text, two, word in (
        ("accuracy(b)", True, "is invalid"),
        ("accuracy(b)>=x", True, "is invalid"),
        ("accuracy(b)>=1e999", True, "is invalid"),
        ("precision(b)>0.5", True, "metrics are accuracy(a or b)"),
        ("accuracy>0.5", True, "accuracy(a) or accuracy(b)"),
        ("accuracy(b)>0.5", False, "one version"),
        ("agreement>0.5", False, "the metrics are"),
        ("agreement(b)>0.5", True, "compares both versions"),
        ("p99(b)<20", True, "ms, s, us"),
        ("accuracy(b)>0.5ms", True, "%, pp"),
        ("mcnemar>5%", True, "no unit"),
        ("p99(b).low<20ms", True, ".low and .high"),
        ("accuracy(b).mean>0.5", True, ".low and .high"),
        ("accuracy(b)>0.5" + " " * 300, True, "is invalid"),
    ):
        assert word in str(refusal(Invalid, parse_gate, text, two=two)), text


def test_gates_are_held_against_what_was_measured():
    gates = parse_gates(["accuracy(b)>=0.95", "agreement>0.95", "ece(a)<0.1"], two=True)
    found = judge(gates, {"accuracy(b)": 0.95, "agreement": 0.95, "ece(a)": None})
    assert found == (
        JudgedGate("accuracy(b)>=0.95", 0.95, True),
        JudgedGate("agreement>0.95", 0.95, False),
        JudgedGate("ece(a)<0.1", None, False),
    )
