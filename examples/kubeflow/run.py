"""Runs a pipeline on this machine, each step as a process of this environment.

    python examples/kubeflow/run.py digits epochs=12 admin_url=http://127.0.0.1:8080

The words are those of `kfp run create`: NAME=VALUE for each parameter. What the steps tell people
is shown; everything else is in the log. Exit status 7 says that the gate kept the model back.
"""

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TextIO

LOCAL = {
    "admin_url": "http://127.0.0.1:8080",
    "data_url": "http://127.0.0.1:8000",
    "grpc_url": "127.0.0.1:8001",
}
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ORT_DISABLE_TELEMETRY": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
GATED = 7
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BEGINS = re.compile(r"Executing task '(?P<name>[^']+)'")
_TOLD = re.compile(r"\s*- (?P<text>.+)")


class Tamed(io.TextIOBase):
    """Takes all that kfp and the steps print: the log gets everything, people get the point."""

    def __init__(self, shown: TextIO, log: TextIO) -> None:
        self._shown = shown
        self._log = log
        self._began = time.monotonic()
        self._rest = ""

    def write(self, text: str) -> int:
        """Whole lines are looked at; the rest waits for its end."""
        *lines, self._rest = (self._rest + _COLOUR.sub("", text)).split("\n")
        for line in lines:
            self._log.write(line + "\n")
            if begins := _BEGINS.search(line):
                seconds = time.monotonic() - self._began
                self._show(f"{seconds:6.1f} s  {begins['name']}")
            elif told := _TOLD.fullmatch(line):
                self._show(f"          {told['text']}")
        self._log.flush()
        return len(text)

    def _show(self, line: str) -> None:
        """Not with `print`, which kfp exchanges for another while a step runs."""
        self._shown.write(line + "\n")
        self._shown.flush()


def main() -> int:
    """Run one pipeline, and say what the gate found."""
    chosen = arguments()
    os.environ.update(QUIET)
    bin_folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}"
    warnings.simplefilter("ignore")  # of kfp: images are not used here, and Python's defaults
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "run.log"
    with path.open("w") as log:
        try:
            with contextlib.redirect_stdout(Tamed(sys.stdout, log)):
                passed = run(chosen.pipeline, dict(chosen.parameters), chosen.out)
        except RuntimeError as error:
            print(f"error: {_COLOUR.sub('', str(error))}\n  log: {path}", file=sys.stderr)
            return 1
    return 0 if passed else GATED


def run(name: str, given: dict[str, str], out: Path) -> bool:
    """Whether the model got the label; `RuntimeError` when a step has failed."""
    import pipeline
    from kfp import local

    function = getattr(pipeline, f"{name}_pipeline")
    known = {key: type(spec.default) for key, spec in function.component_spec.inputs.items()}
    unknown = set(given) - set(known)
    if unknown:
        names = ", ".join(sorted(known))
        raise RuntimeError(f"no parameter '{min(unknown)}' in '{name}'. There are: {names}")
    typed = {key: known[key](value) for key, value in {**LOCAL, **given}.items()}
    runner = local.SubprocessRunner(use_venv=False)
    local.init(runner=runner, pipeline_root=str(out), raise_on_error=True)
    return bool(function(**typed).output)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run a pipeline on this machine.")
    parser.add_argument("pipeline", choices=("digits",))
    parser.add_argument("parameters", nargs="*", type=pair, metavar="NAME=VALUE")
    default = Path(tempfile.gettempdir(), f"servegate-run-{os.getpid()}")
    parser.add_argument("--out", type=Path, metavar="DIR", default=default)
    return parser.parse_args()


def pair(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, mark, value = text.partition("=")
    if not mark:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
