"""Loads: how many calls are in flight, per replica and per model. Plain numbers of one worker."""


class Loads:
    """Counts what has begun and not yet finished, in `replicas` and `models` by their names."""

    def __init__(self) -> None:
        self.replicas: dict[str, int] = {}
        self.models: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Loads replicas={self.replicas} models={self.models}>"

    def on_replica(self, name: str) -> int:
        """Calls in flight on a replica."""
        return self.replicas.get(name, 0)

    @property
    def total(self) -> int:
        """Calls in flight altogether."""
        return sum(self.models.values())

    def entered(self, replica: str) -> None:
        """An attempt on this replica begins."""
        self.replicas[replica] = self.replicas.get(replica, 0) + 1

    def left(self, replica: str) -> None:
        """The attempt is over."""
        count = self.replicas[replica] - 1
        if count:
            self.replicas[replica] = count
        else:
            del self.replicas[replica]
