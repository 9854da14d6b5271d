"""A setup: what is decided about batching and instances, as far as capacity depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSetup:
    """How one replica batches a model, and how many instances run there.

    `max_batch_size`: rows; 0 where the model takes no batches. `batches`: whether calls are put
    together (`dynamic_batching`). `delay`: seconds for which a call may wait for company.
    `preferred`: sizes, ascending, that are sent off without waiting.
    """

    max_batch_size: int
    instances: int = 1
    batches: bool = True
    delay: float = 0.0
    preferred: tuple[int, ...] = ()

    def __str__(self) -> str:
        """`batch 16, 2 instances, delay 500 µs`."""
        most = self.max_batch_size if self.max_batch_size else 1
        words = [f"batch {most}" if self.batches else f"no batching (batch {most})"]
        words.append(f"{self.instances} instance{'' if self.instances == 1 else 's'}")
        if self.batches and self.delay:
            words.append(f"delay {self.delay * 1e6:.0f} µs")
        if self.batches and self.preferred:
            words.append(f"preferred {', '.join(map(str, self.preferred))}")
        return ", ".join(words)
