"""The demo: `servegate up` on the digits model, its traffic split, a page and commands to try.

`make demo` runs this. Ctrl-C, a closed terminal or a kill stop everything that it started.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic, sleep

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]

# Each is run exactly as printed by the project's tests, from the root of the checkout.
COMMANDS = (
    "{bin}/servegate infer digits --input x=@examples/digits/seven.png --top-k 3",
    "curl -s http://127.0.0.1:8000/v2/models/digits/infer -d @examples/digits/seven.json",
    "curl -s http://127.0.0.1:8000/v1/models/digits:predict -d @examples/digits/seven.rows.json",
    "{bin}/python examples/digits/classify.py examples/digits/disagree.png",
    "{bin}/servegate load run --model digits --rate 100 --for 5s --slo 'errors<1%'",
    "{bin}/servegate model push model_repo/digits digits --label fresh --wait",
)
SPLIT = ("route", "set", "digits", "1=90", "2=10", "--reason", "make demo")
LABELS = (("stable", "1"), ("candidate", "2"))
READY = "http://127.0.0.1:8000/v2/health/ready"
PAGE = "http://127.0.0.1:8080/try/digits?a=1&b=2"
PATIENCE = 120.0  # seconds

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def commands() -> tuple[str, ...]:
    """The commands to try, as they are printed."""
    folder = BIN.relative_to(ROOT) if BIN.is_relative_to(ROOT) else BIN
    return tuple(command.format(bin=folder) for command in COMMANDS)


def main() -> int:
    """Start, prepare, say what to try, and wait until `servegate up` ends."""
    os.chdir(ROOT)
    up = subprocess.Popen(
        [str(BIN / "servegate"), "up", "--replicas", "2", "--log-level", "warning"],
        preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # `up` ends, and with it this process
        signal.signal(number, lambda *_: up.terminate())
    if not wait_ready(up):
        return up.wait()
    for label, version in LABELS:
        servegate("label", "set", "digits", label, version)
    servegate(*SPLIT)
    print(f"\nOpen {PAGE} and draw a digit: two versions answer it.", file=sys.stderr)
    print("\nOr try, from another terminal in this folder:\n", file=sys.stderr)
    for command in commands():
        print(f"  {command}", file=sys.stderr)
    print("\nCtrl-C stops the demo.", file=sys.stderr, flush=True)
    return up.wait()


def wait_ready(up: "subprocess.Popen[bytes]") -> bool:
    """Whether the gateway became ready before `up` ended or patience did."""
    until = monotonic() + PATIENCE
    while up.poll() is None and monotonic() < until:
        try:
            with urllib.request.urlopen(READY, timeout=2):
                if is_loaded():
                    return True
        except (urllib.error.URLError, OSError):
            pass
        sleep(0.2)
    return False


def is_loaded() -> bool:
    """Whether the model is ready now: a worker begins with what an earlier demo has left behind."""
    show = [str(BIN / "servegate"), "model", "show", "digits", "--json"]
    done = subprocess.run(show, capture_output=True, check=False)
    return done.returncode == 0 and json.loads(done.stdout)["state"] == "ready"


def servegate(*arguments: str) -> None:
    """Run a command of ours; its own sentences say how it went."""
    subprocess.run([str(BIN / "servegate"), *arguments], check=False)


if __name__ == "__main__":
    sys.exit(main())
