"""Shares of traffic: a weighted split over versions, and which version a draw lands on.

Theory. A split is a list of (version, weight) with integer weights, in ascending version order. One
draw is a number in [0, 1). It is scaled to the total weight and the version in whose interval it
falls is taken, so the same draw and the same split always give the same version. A sequence of
stateful calls takes its draw from a hash of its identity instead of a random number: all its calls
land on one version as long as the split does not change.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from serve.core.errors import Invalid

MAX_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class Split:
    """Versions and their integer weights; weights are relative, they need not add up to 100."""

    shares: tuple[tuple[int, int], ...]
    total: int = field(init=False, compare=False, repr=False)  # the sum of all weights
    versions: tuple[int, ...] = field(init=False, compare=False, repr=False)  # that receive calls

    def __post_init__(self) -> None:
        """Add up once what every call asks for."""
        object.__setattr__(self, "total", sum(weight for _, weight in self.shares))
        weighted = tuple(version for version, weight in self.shares if weight)
        object.__setattr__(self, "versions", weighted)

    @classmethod
    def of(cls, weights: Mapping[int, int]) -> "Split":
        """Check and sort the weights; versions are positive numbers, at least one weight is too."""
        for version, weight in weights.items():
            if version < 1:
                raise Invalid(f"'{version}' is not a version", why="versions are numbered from 1")
            if not 0 <= weight <= MAX_WEIGHT:
                raise Invalid(
                    f"weight {weight} of version {version} is out of range",
                    why=f"weights are whole numbers from 0 to {MAX_WEIGHT}",
                )
        if not any(weights.values()):
            raise Invalid("a traffic split needs at least one version with a weight above 0")
        return cls(tuple(sorted(weights.items())))

    @classmethod
    def parse(cls, terms: Iterator[str] | list[str]) -> "Split":
        """Read terms such as `1=90 2=10`."""
        weights: dict[int, int] = {}
        for term in terms:
            version, sign, weight = term.partition("=")
            if not (sign and _is_count(version) and _is_count(weight)):
                raise Invalid(
                    f"'{term}' is not part of a traffic split",
                    why="the form is VERSION=WEIGHT, both whole numbers",
                    try_this="servegate route set MODEL 1=90 2=10",
                )
            if int(version) in weights:
                raise Invalid(f"version {version} occurs twice in the traffic split")
            weights[int(version)] = int(weight)
        return cls.of(weights)

    def __str__(self) -> str:
        return " ".join(f"{version}={weight}" for version, weight in self.shares)

    @property
    def percent(self) -> str:
        """The share of each version that gets calls: `82 % and 18 %`."""
        shares = (weight for _, weight in self.shares if weight)
        return " and ".join(f"{100 * weight / self.total:.3g} %" for weight in shares)

    def choose(self, draw: float) -> int:
        """The version in whose interval `draw`, a number in [0, 1), falls."""
        point = draw * self.total
        for version, weight in self.shares:
            if point < weight:
                return version
            point -= weight
        return self.versions[-1]  # only when rounding pushed the point onto the very end


def draw_of(*identity: str) -> float:
    """A number in [0, 1) that depends on nothing but the words given: equal everywhere."""
    words = "\0".join(identity).encode(errors="surrogatepass")  # JSON can name half a character
    digest = hashlib.blake2b(words, digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / (1 << 53)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
