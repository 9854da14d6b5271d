"""Look for inputs that break a target, guided by coverage: `python -m fuzz.fuzzing TARGET SECONDS`.

Without a target all of them are fuzzed, one process each. atheris keeps what it learns outside the
repository; an input that breaks a target is put into the target's corpus, where the test suite
plays it from then on. `--past TEXT` goes on past failures that say so.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LEARNED = _ROOT / ".venv-fuzz" / "learned"  # inputs that reach something new
_LARGEST = 4096  # bytes of an input
_SLOW = 20  # seconds for one input


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the data plane.")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--past", default="", help="a pattern of failures to go past")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="targets; all without one")
    asked = parser.parse_args()
    if asked.inside:
        _fuzz(asked.names[0], asked.seconds, asked.past)
        return 0
    from fuzz.targets import TARGETS

    unknown = set(asked.names) - TARGETS.keys()
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}: {', '.join(TARGETS)}")
    broken = [
        name for name in asked.names or TARGETS if not _child(name, asked.seconds, asked.past)
    ]
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def _child(name: str, seconds: int, past: str) -> bool:
    """Fuzz a target in a process of its own; False when an input was found that breaks it."""
    learned = _LEARNED / name
    learned.mkdir(parents=True, exist_ok=True)
    print(f"--- {name}: {seconds} s", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fuzz.fuzzing", "--inside", name]
        command += ["--seconds", str(seconds), f"--past={past}"]
        done = subprocess.run(command, cwd=folder, check=False)
        found = [path for path in Path(folder).iterdir() if "-" in path.name]
        for path in found:
            _keep(name, path)
    return done.returncode == 0 and not found


def _keep(name: str, path: Path) -> None:
    """Put what breaks the target into the corpus, and what is slow beside what was learned."""
    from fuzz.targets import CORPUS

    folder = _LEARNED if path.name.startswith("timeout") else CORPUS
    kept = folder / name / path.name
    kept.write_bytes(path.read_bytes())
    print(f"an input breaks {name}, or is slow: {kept}", file=sys.stderr)


def _fuzz(name: str, seconds: int, past: str) -> None:
    """Run libFuzzer in this process, until the time is over or an input breaks the target."""
    import atheris

    with atheris.instrument_imports(include=["serve"], enable_loader_override=False):
        from fuzz.targets import CORPUS, TARGETS
    from fuzz.mutating import GRAMMARS, mutator

    play = TARGETS[name]

    def once(data: bytes) -> None:
        try:
            play(data)
        except Exception as error:
            if not past or not re.search(past, f"{type(error).__name__}: {error}"):
                raise

    flags = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={_LARGEST}",
        f"-timeout={_SLOW}",
        "-print_final_stats=1",
        "-rss_limit_mb=2048",
        str(_LEARNED / name),
        str(CORPUS / name),
    ]
    grammar = GRAMMARS.get(name)
    change = grammar and mutator(grammar, lambda data, largest: atheris.Mutate(data, largest))
    options = {"custom_mutator": change} if change else {}
    atheris.Setup(flags, once, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
