"""Admission: a finite number of calls in flight per model; beyond it a call is refused at once."""

from serve.core.errors import Overloaded
from serve.proxy.loads import Loads


class Admission:
    """The limit holds for each model by itself, so that one busy model cannot starve the others."""

    def __init__(self, loads: Loads, *, limit: int) -> None:
        self._loads = loads
        self._limit = limit

    def __repr__(self) -> str:
        return f"<Admission limit={self._limit} per model>"

    def enter(self, model: str) -> None:
        """Count the call in, or refuse it with `Overloaded`."""
        models = self._loads.models
        count = models.get(model, 0)
        if count >= self._limit:
            raise Overloaded(model, self._limit)
        models[model] = count + 1

    def has_room(self, model: str) -> bool:
        """Whether one more would be let in now."""
        return self._loads.models.get(model, 0) < self._limit

    def leave(self, model: str) -> None:
        """Count the call out; exactly once for every `enter` that did not raise."""
        models = self._loads.models
        count = models[model] - 1
        if count:
            models[model] = count
        else:
            del models[model]
