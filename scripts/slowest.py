"""Prints what took longest in the last test run: files, tests and fixtures, in seconds."""

import json
from collections import Counter
from pathlib import Path

FILE = Path(__file__).parent.parent / ".test-durations.jsonl"
MOST = 25


def main() -> None:
    """Read the durations file and print three lists."""
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    fixtures: Counter[str] = Counter()
    if not FILE.exists():
        raise SystemExit(f"error: {FILE.name} does not exist\n  try: make test")
    for line in FILE.read_text().splitlines():
        one = json.loads(line)
        path = one["test"].partition("::")[0]
        files[path] += one["seconds"]
        tests[one["test"]] += one["seconds"]
        for name, seconds in one.get("fixtures", {}).items():
            fixtures[f"{name} ({path})"] += seconds
    for title, found in (("files", files), ("tests", tests), ("fixtures", fixtures)):
        print(f"{title}: {sum(found.values()):.0f} s in total")
        for name, seconds in found.most_common(MOST):
            print(f"{seconds:8.1f}  {name}")


if __name__ == "__main__":
    main()
