"""Finds out whether the tests notice small changes to the rules that the product stands on.

    mutate.py list                 write every mutation to scripts/mutations.txt
    mutate.py run [--draw 100]     try some, with the tests that `make coverage` saw at their lines

A mutation turns one comparison, one number or one boolean of a rule around. It is caught when a
test fails, and the first failure ends its run. `run` changes files of `serve/` and puts them back,
so it wants a clean checkout.
"""

import argparse
import ast
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parent.parent
LIST = ROOT / "scripts" / "mutations.txt"
RESULTS = ROOT / ".mutations.jsonl"
RULES = (
    "proxy/routing.py",
    "proxy/balancing.py",
    "proxy/gateway.py",
    "proxy/attempts.py",
    "proxy/admission.py",
    "proxy/slots.py",
    "proxy/outliers.py",
    "proxy/mirrors.py",
    "proxy/health.py",
    "core/access.py",
    "core/routes.py",
    "wire/status.py",
    "tensors/expected_outputs.py",
    "tensors/comparison.py",
    "workbench/conversion/gate/rules.py",
    "workbench/conversion/gate/verdict.py",
    "workbench/conversion/gate/tallies.py",
    "statistics/gates.py",
    "capacity/scaling/groups.py",
    "capacity/scaling/policy.py",
)
COMPARISONS = {  # the operator as it is written, and its change
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
MOST_TESTS = 400  # per mutation: those that reach the fewest lines first
SECONDS = 300.0  # per mutation; one whose tests take longer counts as caught, since calls hang


@dataclass(frozen=True)
class Mutation:
    """One change: the text from `begin` to `end` of a file becomes `after`."""

    path: str
    function: str
    line: int
    column: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}"
        return f"{place} {self.function}: {self.before} → {self.after or '(nothing)'}"


class Finder(ast.NodeVisitor):
    """Collects the mutations of one file."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source.encode()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._function: list[str] = []
        self.found: list[Mutation] = []

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self._at(node.lineno, node.col_offset)
        return begin, self._at(node.end_lineno, node.end_col_offset)

    def _add(self, begin: int, end: int, after: str) -> None:
        line = self._source.count(b"\n", 0, begin) + 1
        before = self._source[begin:end].decode()
        name = ".".join(self._function) or "-"
        column = begin - self._starts[line - 1]
        self.found.append(Mutation(self._path, name, line, column, begin, end, before, after))

    def _between(self, left: ast.expr, right: ast.expr, word: str, after: str) -> None:
        begin, end = self._span(left)[1], self._span(right)[0]
        at = self._source.find(word.encode(), begin, end)
        if at >= 0:
            self._add(at, at + len(word), after)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._function.append(node.name)
        for child in [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *node.body]:
            self.visit(child)
        self._function.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._function.append(node.name)
        for child in node.body:
            self.visit(child)
        self._function.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between(left, right, *COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, word, after)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            begin = self._span(node)[0]
            self._add(begin, begin + len("not"), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(*self._span(node), str(not node.value))
        elif isinstance(node.value, int | float):
            begin, end = self._span(node)
            self._add(begin, end, f"({self._source[begin:end].decode()} + 1)")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are not rules."""


def mutations() -> Iterator[Mutation]:
    """Those of all rules, in the order of the files."""
    for path in RULES:
        source = (ROOT / "serve" / path).read_text()
        finder = Finder(f"serve/{path}", source)
        finder.visit(ast.parse(source))
        yield from sorted(finder.found, key=lambda one: (one.begin, one.after))


def covering(data: CoverageData) -> dict[tuple[str, int], list[str]]:
    """The tests that reach each line of a rule; those that reach the fewest lines come first."""
    reached: dict[tuple[str, int], set[str]] = {}
    lines: dict[str, int] = {}
    for file in data.measured_files():
        path = Path(file)
        if not path.is_relative_to(ROOT) or str(path.relative_to(ROOT / "serve")) not in RULES:
            continue
        for line, contexts in data.contexts_by_lineno(file).items():
            tests = {one.split("|")[-1] for one in contexts} - {""}
            reached[f"serve/{path.relative_to(ROOT / 'serve')}", line] = tests
            for test in tests:
                lines[test] = lines.get(test, 0) + 1
    return {at: sorted(tests, key=lambda one: (lines[one], one)) for at, tests in reached.items()}


def attempt(one: Mutation, tests: list[str]) -> str:
    """Make the change, run the tests and put the file back; `caught` or `survived`."""
    path = ROOT / one.path
    source = path.read_bytes()
    path.write_bytes(source[: one.begin] + one.after.encode() + source[one.end :])
    words = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-n", "2", *tests]
    try:
        child = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"DURATIONS_APPEND": "1"},
        )
        try:
            status = child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = 1
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    finally:
        path.write_bytes(source)
    return "survived" if status == 0 else "caught"


def write_list() -> None:
    """Write every mutation to the list, one per line."""
    LIST.write_text("".join(f"{one}\n" for one in mutations()))


def run(draw: int, seed: int, data_file: str) -> None:
    """Try a seeded draw of the list, and say what was caught."""
    wanted = set(random.Random(seed).sample(LIST.read_text().splitlines(), draw))
    chosen = [one for one in mutations() if str(one) in wanted]
    data = CoverageData(data_file)
    data.read()
    tests = covering(data)
    counts: dict[str, int] = {}
    if missing := len(wanted) - len(chosen):
        print(f"{missing} selected mutations no longer exist; run `mutate.py list`")
    for number, one in enumerate(chosen, 1):
        found = tests.get((one.path, one.line), [])
        begun = time.monotonic()
        result = attempt(one, found[:MOST_TESTS]) if found else "not reached"
        counts[result] = counts.get(result, 0) + 1
        seconds = time.monotonic() - begun
        print(
            f"{number}/{len(chosen)} {result} ({len(found)} tests, {seconds:.0f} s) {one}",
            flush=True,
        )
        with RESULTS.open("a") as file:
            file.write(json.dumps({"mutation": str(one), "result": result}) + "\n")
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=["list", "run"])
    parser.add_argument("--draw", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=str(ROOT / ".coverage"))
    options = parser.parse_args()
    if options.command == "list":
        write_list()
    else:
        run(options.draw, options.seed, options.data)


if __name__ == "__main__":
    main()
