"""The data plane beside nginx, haproxy and Envoy: calls a second, latency, CPU time and memory.

    python -m loadtests.bench.dataplane                      everything, in about 20 minutes
    python -m loadtests.bench.dataplane --quick              the most telling rows, in about 4
    python -m loadtests.bench.dataplane --only http-64B      single rows, repeatable

Proxies that run already are measured beside each other with `--target` (and `--pid` for CPU time);
the first is the reference unless `--reference` names another:

    python -m loadtests.bench.dataplane --only http-64B --target direct=http://127.0.0.1:9000 \
        --target nginx=http://127.0.0.1:8320 --pid nginx=4242 --reference nginx

A target is called at its own ports, so rows of HTTP and of gRPC need separate runs.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loadtests.bench import machine, rows, tables
from loadtests.bench.measuring import Plan, measure
from loadtests.bench.results import FOLDER
from loadtests.bench.rows import Row
from loadtests.bench.targets import DIRECT, REFERENCE, Target, given, pair
from loadtests.bench.whole import compare


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run fewer rows, for a shorter time")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="repeatable")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument(
        "--rounds", type=int, help="number of rounds (default: 5, or 2 with --quick)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="duration of one run in seconds (default: 1)"
    )
    parser.add_argument(
        "--no-extras", action="store_true", help="skip the 1 GiB bodies and the memory"
    )
    parser.add_argument("--out", type=Path, help="file for the results as JSON")
    running = parser.add_argument_group("running proxies")
    running.add_argument("--target", action="append", default=[], type=pair, metavar="NAME=URL")
    running.add_argument("--pid", action="append", default=[], type=pair, metavar="NAME=PID")
    running.add_argument("--reference", help="target to compare with")
    running.add_argument("--direct", default=DIRECT, help="target without a proxy")
    return parser.parse_args(argv)


def main() -> int:
    """Measure and print; exit status 1 when a call failed."""
    chosen = arguments()
    if chosen.list:
        print("\n".join(f"{row.name:24}{row.title}" for row in rows.ROWS))
        return 0
    rounds = chosen.rounds or (2 if chosen.quick else 5)
    plan = Plan(rounds, chosen.seconds, chosen.reference or "", chosen.direct)
    try:
        wanted = rows.choose(chosen.only, quick=chosen.quick)
        targets = given(chosen.target, chosen.pid)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if targets:
        return 1 if _running(wanted, targets, plan) else 0
    plan = replace(plan, reference=plan.reference or REFERENCE)
    results = compare(plan, wanted, extras=not chosen.only and not chosen.no_extras)
    path = chosen.out or FOLDER / f"dataplane-{time.strftime('%Y%m%d-%H%M%S')}.json"
    results.save(path)
    print(f"calls of the traffic split by version: {dict(results.shares)}")
    print(f"results: {path}")
    return 1 if results.problems else 0


def _running(wanted: Sequence[Row], targets: Sequence[Target], plan: Plan) -> int:
    """Measure targets that run already; how many calls failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        for row in wanted:
            one = measure(row, targets, plan, cores=machine.cores(), folder=Path(folder))
            print(tables.text(one), end="\n\n", flush=True)
            failed += sum(line.failed for line in one.lines)
    return failed


if __name__ == "__main__":
    sys.exit(main())
