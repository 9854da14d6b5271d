"""Loads: how many calls are in flight, per replica and per model. Plain numbers of one worker."""

from collections import Counter


class Loads:
    """Counts what has begun and not yet finished."""

    def __init__(self) -> None:
        self._replicas: Counter[str] = Counter()
        self._models: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Loads replicas={dict(self._replicas)} models={dict(self._models)}>"

    def on_replica(self, name: str) -> int:
        """Calls in flight on a replica."""
        return self._replicas[name]

    def on_model(self, name: str) -> int:
        """Calls in flight for a model, over all its versions."""
        return self._models[name]

    @property
    def total(self) -> int:
        """Calls in flight altogether."""
        return sum(self._models.values())

    def model_entered(self, name: str) -> None:
        """A call for this model was admitted."""
        self._models[name] += 1

    def model_left(self, name: str) -> None:
        """The call has its answer, whatever it was."""
        _lower(self._models, name)

    def replica_entered(self, name: str) -> None:
        """An attempt on this replica begins."""
        self._replicas[name] += 1

    def replica_left(self, name: str) -> None:
        """The attempt is over."""
        _lower(self._replicas, name)


def _lower(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]
