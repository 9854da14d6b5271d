"""A small closed-loop load: threads that call until told to stop, and what became of it.

And a gateway for it, whose model writes down every execution.
"""

import contextlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import harness
import repositories


@dataclass
class Load:
    """Calls `body()` → (path, bytes, name) from `clients` threads on keep-alive connections.

    `pause`: seconds between two calls of a client.
    """

    host: str
    body: object
    clients: int = 8
    pause: float = 0.0
    outcomes: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    answered: list = field(default_factory=list)
    versions: Counter = field(default_factory=Counter)

    def __enter__(self):
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(self.clients)]
        for thread in self._threads:
            thread.start()
        return self

    @property
    def calls(self):
        return sum(self.outcomes.values())

    def __exit__(self, *exc):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def wait_calls(self, count, patience=60.0):
        goal = self.calls + count
        until = time.monotonic() + patience
        while self.calls < goal:
            assert time.monotonic() < until, f"too few calls: {self.outcomes}"
            self._stop.wait(0.01)

    def _run(self, number):
        connection = http.client.HTTPConnection(self.host, timeout=30)
        count = 0
        while not self._stop.wait(self.pause):
            path, data, name = self.body(number, count)
            count += 1
            try:
                connection.request("POST", path, data, {"content-type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                self.outcomes[answer.status] += 1
                if answer.status == 200:
                    self.answered.append(name)
                    self.versions[json.loads(text)["model_version"]] += 1
                else:
                    self.failures.append((name, answer.status, text.decode()))
            except OSError as error:
                self.outcomes[type(error).__name__] += 1
                self.failures.append((name, 0, repr(error)))
                connection.close()
                connection = http.client.HTTPConnection(self.host, timeout=30)
        connection.close()


@contextlib.contextmanager
def counting(folder: Path, *, workers: int = 1) -> Iterator[tuple[harness.Up, Path]]:
    """Two Tritons with that model, and its log; whatever dies comes back."""
    log = folder / "executed"
    log.touch()
    models = folder / "models"
    repositories.python_model(models, "counting", repositories.COUNTING.format(log=str(log)))
    flags = ("--model-repo", str(models), "--replicas", "2", "--workers", str(workers))
    with harness.up(folder / "state", *flags) as up:
        yield up, log


def counted(number: int, count: int) -> tuple[str, str, str]:
    """One call of that model, with a name of its own."""
    name = f"c{number}-{count}"
    return "/v2/models/counting/infer", json.dumps(repositories.request(name)), name


def assert_executed_once(load: Load, log: Path) -> None:
    """What was answered was executed, and nothing was executed twice."""
    executed = log.read_text().split()
    assert len(executed) == len(set(executed)), "a call was executed twice"
    assert set(load.answered) <= set(executed)


def steady(address: str, model: str, body: str, *, clients: int = 4) -> Load:
    """A load of a few calls a second on one model, for tests in which none may fail."""
    call = f"/v2/models/{model}/infer", body, ""
    return Load(address, lambda number, count: call, clients, pause=0.2)
