"""Which files of `serve/` a call executes: one HTTP call, one gRPC call, and one push.

    python scripts/call_paths.py [CHECKOUT]

It starts a gateway from the checkout (default: this one) with a profiler in every process, which
records while SIGUSR2 has switched it on. A path is what runs during the second call, without what
also runs while nothing is called. A push is recorded from its first byte until it is ready.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

HOOK = """
import os, signal, sys, threading
root, out, on, files = os.environ["PATHS_ROOT"], os.environ["PATHS_OUT"], False, set()
def note(frame, event, argument):
    if on and event == "call":
        files.add(frame.f_code.co_filename)
def switch(number, frame):
    global on
    if on:
        found = sorted(one[len(root):] for one in files if one.startswith(root))
        with open(f"{out}/{os.getpid()}.new", "w") as file:
            file.write("\\n".join(found))
        os.replace(file.name, f"{out}/{os.getpid()}")
        files.clear()
    on = not on
try:
    signal.signal(signal.SIGUSR2, switch)
    threading.setprofile(note)
    sys.setprofile(note)
except ValueError:
    pass
"""
IDLE = 4.0  # seconds
PATIENCE = 120.0  # seconds


class Recorder:
    """Records in one process."""

    def __init__(self, pid: int, out: Path) -> None:
        self._pid = pid
        self._file = out / str(pid)

    def begin(self) -> None:
        """From now on."""
        os.kill(self._pid, signal.SIGUSR2)
        time.sleep(0.2)

    def end(self) -> set[str]:
        """The files that ran since then."""
        self._file.unlink(missing_ok=True)
        os.kill(self._pid, signal.SIGUSR2)
        until(self._file.exists)
        return set(self._file.read_text().split())

    def idle(self, seconds: float = IDLE) -> set[str]:
        """What runs while nothing is asked."""
        self.begin()
        time.sleep(seconds)
        return self.end()


def until(reached: Callable[[], object]) -> None:
    """Wait for something that is callable and becomes true."""
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise SystemExit(f"not reached within {PATIENCE:g} s: {reached}")
        time.sleep(0.1)


def main(checkout: Path) -> None:
    """Record, and print."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "hook").mkdir()
        (folder / "out").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(HOOK)
        environment = os.environ | {
            "PYTHONPATH": f"{folder / 'hook'}:{checkout}",
            "PATHS_ROOT": f"{checkout / 'serve'}/",
            "PATHS_OUT": str(folder / "out"),
        }
        ports = ("--http-port", "18400", "--grpc-port", "18401", "--admin-port", "18402")
        command = [sys.executable, "-c", "from serve.cli.main import main; main()"]
        up = subprocess.Popen(
            [
                *(*command, "up", "--model-repo", str(checkout / "model_repo"), *ports),
                *("--metrics-port", "18403", "--state", str(folder / "state")),
                *("--replicas", "1", "--workers", "1"),
            ],
            env=environment,
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert up.stderr is not None
            for line in up.stderr:
                if line.startswith("ready: "):
                    break
            record(checkout, folder, command, environment)
        finally:
            up.send_signal(signal.SIGTERM)
            up.communicate()


def record(checkout: Path, folder: Path, command: list[str], environment: dict[str, str]) -> None:
    """The three paths of a gateway that is up."""
    page = json.loads((folder / "state" / "children.json").read_text())
    pids = {child["name"]: child["pid"] for child in page["children"]}
    children = Path(f"/proc/{pids['workers']}/task/{pids['workers']}/children").read_text().split()
    worker = Recorder(int(children[0]), folder / "out")
    control = Recorder(pids["control"], folder / "out")
    body = (checkout / "examples/digits/seven.json").read_bytes()

    def http() -> None:
        url = "http://127.0.0.1:18400/v2/models/digits/infer"
        headers = {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()

    idle = worker.idle()
    for name, call in (("HTTP infer", http), ("gRPC infer", lambda: grpc(body))):
        call()
        worker.begin()
        call()
        show(name, worker.end() - idle)
    quiet = control.idle(2 * IDLE)
    control.begin()
    subprocess.run(
        [
            *(*command, "model", "push", str(checkout / "model_repo" / "digits"), "pushed"),
            *("--wait", "--admin-url", "http://127.0.0.1:18402"),
        ],
        env=environment,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    show("push, the control plane until it is ready", control.end() - quiet)


def grpc(body: bytes) -> None:
    """One call with Triton's client."""
    import numpy as np
    from tritonclient import grpc as client

    values = json.loads(body)["inputs"][0]
    tensor = client.InferInput(values["name"], values["shape"], values["datatype"])
    tensor.set_data_from_numpy(np.array(values["data"], np.float32).reshape(values["shape"]))
    with client.InferenceServerClient("127.0.0.1:18401") as connection:
        connection.infer("digits", [tensor])


def show(name: str, files: set[str]) -> None:
    """One path."""
    print(f"{name}: {len(files)} files")
    for file in sorted(files):
        print(f"  {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
