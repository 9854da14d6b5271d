"""Look for inputs that break a target, guided by coverage: `python -m fuzz.fuzzing TARGET SECONDS`.

Without a target all of them are fuzzed, one process each. atheris keeps what it learns outside the
repository; an input that breaks a target is made as small as it gets and put into the target's
corpus, where the test suite plays it from then on. `--past TEXT` goes on past failures that say so.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LEARNED = _ROOT / ".venv-fuzz" / "learned"  # inputs that reach something new
_LARGEST = 4096  # bytes of an input
_SLOW = 20  # seconds for one input
_TRIES = 3000  # to make an input smaller
Play = Callable[[bytes], None]


def main() -> int:
    """Fuzz one target, or each of them in a process of its own."""
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
    """Put what libFuzzer has found into the corpus, as small as it gets."""
    from fuzz.targets import CORPUS, TARGETS

    play = TARGETS[name]
    data = path.read_bytes()
    if path.name.startswith("timeout") or not _where(play, data):
        kept = _LEARNED / name / path.name
        kept.write_bytes(data)
        print(f"{path.name} is slow, or breaks {name} no more: see {kept}", file=sys.stderr)
        return
    data = smallest(play, data)
    kept = CORPUS / name / f"found-{_slug(play, data)}"
    kept.write_bytes(data)
    print(f"an input of {len(data)} bytes breaks {name}: {kept}", file=sys.stderr)


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
            if not past or not re.search(past, _said(error)):
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
    options = (
        {"custom_mutator": mutator(grammar, lambda d, n: atheris.Mutate(d, n))} if grammar else {}
    )
    atheris.Setup(flags, once, **options)
    atheris.Fuzz()


def smallest(play: Play, data: bytes) -> bytes:
    """The smallest input that is found to break the target in the same place."""
    where = _where(play, data)
    size, tries = max(1, len(data) // 2), 0
    while where and size:
        at = 0
        while at < len(data) and tries < _TRIES:
            tries += 1
            shorter = data[:at] + data[at + size :]
            if _where(play, shorter) == where:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _where(play: Play, data: bytes) -> str:
    """The kind of failure and the line that it comes from; empty when there is none."""
    try:
        play(data)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} {last.filename}:{last.lineno} {_words(error)[:40]}"
    return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _words(error: Exception) -> str:
    return re.sub(r"[^a-zA-Z ]+", "", str(error).partition("\n")[0]).strip()


def _slug(play: Play, data: bytes) -> str:
    """A name for an input: what fails, and a few digits of its digest."""
    words = "unknown"
    try:
        play(data)
    except Exception as error:
        words = "-".join(_words(error).lower().split()[:6]) or type(error).__name__.lower()
    return f"{words}-{hashlib.sha256(data).hexdigest()[:8]}"


if __name__ == "__main__":
    sys.exit(main())
