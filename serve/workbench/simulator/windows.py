"""Windows: what was seen in the last seconds, as metrics systems keep it."""

from collections import deque


class TickWindow:
    """Values of the last seconds, tick by tick; a value that is as old as the window is gone."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._times: deque[float] = deque()
        self.values: deque[float] = deque()

    def __repr__(self) -> str:
        return f"<TickWindow of {self._seconds:g} s, {len(self.values)} values>"

    def add(self, at: float, value: float) -> None:
        """One tick's."""
        self._times.append(at)
        self.values.append(value)
        while self._times[0] <= at - self._seconds:
            self._times.popleft()
            self.values.popleft()

    @property
    def total(self) -> float:
        """0 without any."""
        return sum(self.values)

    @property
    def mean(self) -> float:
        """0 without any."""
        return sum(self.values) / len(self.values) if self.values else 0.0
