"""A small closed-loop load: threads that call until told to stop, and what became of it."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Load:
    """Calls `body()` → (path, bytes) from `clients` threads on keep-alive connections."""

    host: str
    body: object
    clients: int = 8
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

    def __exit__(self, *exc):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def wait_calls(self, count, patience=60.0):
        """Until this many more calls have ended."""
        goal = sum(self.outcomes.values()) + count
        until = time.monotonic() + patience
        while sum(self.outcomes.values()) < goal:
            assert time.monotonic() < until, f"too few calls: {self.outcomes}"
            self._stop.wait(0.01)

    def _run(self, number):
        import http.client

        connection = http.client.HTTPConnection(self.host, timeout=30)
        count = 0
        while not self._stop.is_set():
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
