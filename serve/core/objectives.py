"""What a model promises its callers, written as `p99<50ms`."""

import math
import re
from dataclasses import dataclass

from serve.core.errors import Invalid

_FORM = re.compile(
    r"^p(?P<quantile>\d{1,2}(?:\.\d{1,3})?)\s*<\s*(?P<limit>\d+(?:\.\d+)?)(?P<unit>ms|s)\Z",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Objective:
    """A quantile of the latency, in per cent, and the limit it stays under, in seconds."""

    quantile: float
    limit: float

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Read `p99<50ms` or `p99.9<1.5s`."""
        match = _FORM.match(text.strip())
        if match is None:
            raise Invalid(
                f"'{text}' is not an objective",
                why="an objective has a quantile and a limit in ms or s",
                try_this="p99<50ms",
            )
        quantile, limit = float(match["quantile"]), float(match["limit"])
        if quantile == 0 or limit == 0 or not math.isfinite(limit):
            raise Invalid(
                f"'{text}' is not an objective", why="both numbers must be finite and above 0"
            )
        return cls(quantile, limit / 1000 if match["unit"] == "ms" else limit)

    def __str__(self) -> str:
        return f"p{_plain(self.quantile)}<{_plain(self.limit * 1000)}ms"


def _plain(number: float) -> str:
    """Without an exponent and without idle zeros."""
    return f"{number:.6f}".rstrip("0").rstrip(".")
