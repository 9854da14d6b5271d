"""Gates: conditions on the numbers of an evaluation, such as `accuracy(b)>=0.95`.

    gate   := NAME [ "(" SIDE ")" ] [ ".low" | ".high" ] ("<" | "<=" | ">" | ">=") NUMBER [ UNIT ]
    SIDE   := a | b           which may be left out where only one version is evaluated
    UNIT   := ms | s | us     of latencies, and there always
            | % | pp          of shares and their differences

`.low` and `.high` are the limits of the 95 % interval, where the number has one.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from serve.core.errors import Invalid

SHARES = ("accuracy", "macro_f1", "ece", "failed")
LATENCIES = ("p50", "p90", "p99")
ERRORS = ("mae", "rmse")
COMPARED = ("agreement", "drop", "mcnemar", "difference")
INTERVALS = ("accuracy", "agreement", "drop")
MOST_GATES = 50
_SIDED = (*SHARES, *LATENCIES, *ERRORS)
_FORM = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*)\s*(?:\(\s*(?P<side>[a-z]+)\s*\))?\s*(?:\.(?P<end>[a-z]+))?"
    r"\s*(?P<sign><=|>=|<|>)\s*(?P<value>[+-]?(?:\d+\.?\d*|\.\d+))\s*(?P<unit>[a-z%]*)\Z",
    re.ASCII,
)
_UNITS = {"ms": 1.0, "s": 1000.0, "us": 0.001}
_PARTS = {"": 1.0, "%": 0.01, "pp": 0.01}


@dataclass(frozen=True, slots=True)
class EvaluationGate:
    """One condition: the number `of` (as in `measured`), `sign`, `limit` in the number's unit."""

    text: str
    of: str
    sign: str
    limit: float


@dataclass(frozen=True, slots=True)
class JudgedGate:
    """A gate and the number that it was held against; None could not be measured, and fails."""

    text: str
    value: float | None
    passed: bool


def parse_gate(text: str, *, two: bool) -> EvaluationGate:
    """Read one gate for an evaluation of one or two versions; `Invalid` names what is known."""
    match = _FORM.match(text.strip()) if len(text) <= 200 else None
    if match is None:
        raise Invalid(
            f"the gate '{text[:60]}' is invalid",
            why="a gate consists of a metric, an operator (<, <=, >, >=) and a limit",
            try_this="accuracy(b)>=0.95",
        )
    name, side, end, unit = (match[part] or "" for part in ("name", "side", "end", "unit"))
    if name not in (*_SIDED, *(COMPARED if two else ())):
        known = [f"{one}({'a or b' if two else 'a'})" for one in _SIDED]
        raise _wrong(text, f"the metrics are {', '.join([*known, *(COMPARED if two else ())])}")
    if end and (end not in ("low", "high") or name not in INTERVALS):
        raise _wrong(text, f".low and .high are limits of the interval of {', '.join(INTERVALS)}")
    scale = _scale(text, name, unit)
    of = name + (f"({_side(text, name, side, two)})" if name in _SIDED else "")
    if name not in _SIDED and side:
        raise _wrong(
            text, f"{name} compares both versions; write {name}{match['sign']}{match['value']}"
        )
    return EvaluationGate(
        text.strip(), of + (f".{end}" if end else ""), match["sign"], float(match["value"]) * scale
    )


def parse_gates(texts: Iterable[str], *, two: bool) -> tuple[EvaluationGate, ...]:
    """Several gates."""
    gates = tuple(parse_gate(text, two=two) for text in texts)
    if len(gates) > MOST_GATES:
        raise Invalid(f"{len(gates)} gates are too many", why=f"at most {MOST_GATES} are allowed")
    return gates


def judge(
    gates: Iterable[EvaluationGate], measured: Mapping[str, float | None]
) -> tuple[JudgedGate, ...]:
    """Hold each gate against what was measured."""
    return tuple(_judged(gate, measured.get(gate.of)) for gate in gates)


def _judged(gate: EvaluationGate, value: float | None) -> JudgedGate:
    if value is None or math.isnan(value):
        return JudgedGate(gate.text, None, False)
    passed = {
        "<": value < gate.limit,
        "<=": value <= gate.limit,
        ">": value > gate.limit,
        ">=": value >= gate.limit,
    }[gate.sign]
    return JudgedGate(gate.text, value, passed)


def _side(text: str, name: str, side: str, two: bool) -> str:
    if side in ("a", "b") and (two or side == "a"):
        return side
    if not side and not two:
        return "a"
    sides = (
        f"{name}(a) or {name}(b)" if two else f"{name}(a), because only one version is evaluated"
    )
    raise _wrong(text, f"write {sides}")


def _scale(text: str, name: str, unit: str) -> float:
    if name in LATENCIES:
        if unit not in _UNITS:
            raise _wrong(text, f"a latency needs a unit ({', '.join(_UNITS)})")
        return _UNITS[unit]
    is_plain = name in (*ERRORS, "mcnemar", "difference")
    if unit not in (("",) if is_plain else _PARTS):
        raise _wrong(
            text, f"{name} has no unit" if is_plain else f"the unit of {name} is %, pp or none"
        )
    return _PARTS[unit]


def _wrong(text: str, why: str) -> Invalid:
    return Invalid(f"the gate '{text[:60]}' is invalid", why=why)
