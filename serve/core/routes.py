"""Routes: weighted splits over versions, callers that stay with a version, and matches.

A split is a list of (version, weight) with integer weights, in ascending version order. A random
call takes a number in [0, 1), which is scaled to the total weight; the version in whose interval it
falls is taken.

Sticky callers and sequences are assigned by weighted rendezvous hashing instead: every version
gets the score ln(u) / weight, with u in [0, 1) from a hash of the identity and the version, and the
highest score wins. Each version gets weight / total of all identities, and an identity moves only
to a version whose weight has risen relative to that of its own (Thaler and Ravishankar, IEEE/ACM
Transactions on Networking 6, 1998; Schindelhauer and Schomaker, SPAA 2005).
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypedDict

from serve.core.errors import Invalid

MAX_WEIGHT = 1_000_000
MOST_MATCHES = 20
LONGEST_DEADLINE = 86_400.0  # seconds
BY_KEY, BY_REQUEST_ID = "key", "request-id"
HEADER = "header:"
_REQUEST_ID = "x-request-id"
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_SMALLEST = 2.0**-54  # for a draw of 0, whose logarithm does not exist


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

    def assign(self, *identity: str) -> int:
        """The version of this identity: a model's name and who calls it, for example."""
        scores = (
            (math.log(draw_of(*identity, str(version)) or _SMALLEST) / weight, version)
            for version, weight in self.shares
            if weight
        )
        return max(scores)[1]


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """Calls with a header of this value, or with a key of this id, go by a split of their own.

    `value` and `key` are shell patterns. Either `header` (in lower case) or `key` is empty.
    """

    split: Split
    header: str = ""
    value: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """`Invalid` for a condition that no call could meet."""
        if bool(self.header) == bool(self.key):
            raise Invalid(
                "a match needs a header or a key",
                why="both are set" if self.key else "neither is set",
                try_this='{"header": "x-team", "value": "blue", "split": {"2": 100}}',
            )
        if self.header:
            check_header(self.header)

    def __str__(self) -> str:
        if self.key:
            return f"key:{self.key} {self.split}"
        return f"{HEADER}{self.header}={self.value} {self.split}"

    @classmethod
    def parse(cls, text: str) -> "RouteMatch":
        """Read `header:x-team=blue 2=100` or `key:3f* 1=50 2=50`."""
        condition, *terms = text.split() or [""]
        kind, _, rest = condition.partition(":")
        if kind == "key" and rest:
            return cls(Split.parse(terms), key=rest)
        name, equals, value = rest.partition("=")
        if kind != "header" or not equals:
            raise Invalid(
                f"'{text}' is not a match",
                why="the form is header:NAME=VALUE or key:ID, followed by VERSION=WEIGHT",
                try_this="--match 'header:x-team=blue 2=100'",
            )
        return cls(Split.parse(terms), header=name.lower(), value=value)

    def takes_key(self, key: str) -> bool:
        """Whether a caller with the key of this id is meant; an empty id is no key."""
        return bool(key) and fnmatchcase(key, self.key)

    def takes_value(self, value: str) -> bool:
        """Whether a call with this header value is meant; without the header it is empty."""
        return fnmatchcase(value, self.value)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        which = {"key": self.key} if self.key else {"header": self.header, "value": self.value}
        return {**which, "split": weights_json(self.split)}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> "RouteMatch":
        """Read what `to_json` gave; `Invalid`, `LookupError` or `TypeError` for anything else."""
        split, header = split_from_json(page["split"]), str(page.get("header", ""))
        return cls(split, header.lower(), str(page.get("value", "")), str(page.get("key", "")))


@dataclass(frozen=True, slots=True)
class Mirror:
    """A part of the calls is also sent to `version`; callers never get its responses.

    `code` allows it also for a version that runs code or calls other models: what it does besides
    responding, it does for copies as well. `keep` says that the inputs of some calls to which the
    two respond differently are kept, as runs.
    """

    version: int
    percent: float
    code: bool = False
    keep: bool = False

    def __post_init__(self) -> None:
        """`Invalid` for what is no version or no share."""
        if self.version < 1:
            raise Invalid(f"'{self.version}' is not a version", why="versions are numbered from 1")
        if not 0 < self.percent <= 100:
            raise Invalid(
                f"{self.percent:g} % of the calls cannot be mirrored",
                why="the percentage is above 0 and at most 100",
            )

    def __str__(self) -> str:
        return f"{self.version}={self.percent:g}"

    @classmethod
    def parse(cls, text: str, *, code: bool = False, keep: bool = False) -> "Mirror":
        """Read `2=10`, a version and a percentage."""
        version, _, percent = text.removesuffix("%").partition("=")
        try:
            share = float(percent)
        except ValueError:
            share = math.nan
        if not _is_count(version) or math.isnan(share):
            raise Invalid(
                f"'{text}' is not a mirror",
                why="the form is VERSION=PERCENT",
                try_this="--mirror 2=10",
            )
        return cls(int(version), share, code, keep)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        page: dict[str, Any] = {"version": self.version, "percent": self.percent}
        flags = {"code": self.code, "keep": self.keep}
        return page | {name: True for name, is_set in flags.items() if is_set}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> "Mirror | None":
        """Read what `to_json` gave; None for an empty page."""
        if not page:
            return None
        if unknown := set(page) - {"version", "percent", "code", "keep"}:
            raise Invalid(f"unknown in a mirror: {', '.join(sorted(map(str, unknown)))}")
        if missing := {"version", "percent"} - set(page):
            raise Invalid(f"a mirror needs {' and '.join(sorted(missing))}")
        flags = {name: page.get(name, False) for name in ("code", "keep")}
        for name, flag in flags.items():
            if not isinstance(flag, bool):
                raise Invalid(f"{name} cannot be {flag!r}", why="expected true or false")
        return cls(int(page["version"]), float(page["percent"]), **flags)


class RouteRules(TypedDict, total=False):
    """What a route has besides its split."""

    sticky: str
    matches: tuple[RouteMatch, ...]
    fallback: int
    deadline: float
    idempotent: bool
    mirror: Mirror | None


@dataclass(frozen=True, slots=True)
class Route:
    """How a model's calls that name no version are distributed.

    The first of `matches` that takes a call decides instead of `split`. `sticky` says whose calls
    stay with one version: `key`, `request-id`, `header:NAME`, or empty for none. `fallback` is the
    version for calls whose version no replica has loaded; 0 for none.

    `deadline` and `idempotent` hold for every unary predict call of the model, also for one that
    names a version: the first is the longest it may take, in seconds (0: only the limits of the
    gateway and of the caller), and the second says that it may be executed twice. `mirror` holds
    for unary calls that name no version.
    """

    split: Split
    sticky: str = ""
    matches: tuple[RouteMatch, ...] = ()
    fallback: int = 0
    deadline: float = 0.0
    idempotent: bool = False
    mirror: Mirror | None = None

    def __post_init__(self) -> None:
        """`Invalid` for an unknown identity, no version, too many matches, or a wrong deadline."""
        check_sticky(self.sticky)
        if self.fallback < 0:
            raise Invalid(f"'{self.fallback}' is not a version", why="versions are numbered from 1")
        if len(self.matches) > MOST_MATCHES:
            raise Invalid(
                f"{len(self.matches)} matches are too many",
                why=f"at most {MOST_MATCHES} are allowed",
            )
        if not 0 <= self.deadline <= LONGEST_DEADLINE:
            raise Invalid(
                f"a deadline of {self.deadline:g} s is out of range",
                why=f"it is a number of seconds from 0 (none) to {LONGEST_DEADLINE:g}",
            )

    @property
    def rules(self) -> RouteRules:
        """All but the split."""
        return RouteRules(
            sticky=self.sticky,
            matches=self.matches,
            fallback=self.fallback,
            deadline=self.deadline,
            idempotent=self.idempotent,
            mirror=self.mirror,
        )

    @property
    def called(self) -> frozenset[int]:
        """The versions that calls without a version may go to, except the fallback."""
        splits = [self.split, *(match.split for match in self.matches)]
        return frozenset(version for split in splits for version in split.versions)

    @property
    def weights(self) -> dict[int, int]:
        """All versions that the route names, each with its largest weight."""
        found = {self.fallback: 1} if self.fallback else {}
        if self.mirror is not None:
            found[self.mirror.version] = 1
        for version, weight in self.split.shares:
            found[version] = max(weight, found.get(version, 0))
        for match in self.matches:
            for version, weight in match.split.shares:
                found[version] = max(weight, found.get(version, 0))
        return found

    @property
    def versions(self) -> tuple[int, ...]:
        """Those that receive calls."""
        return tuple(sorted(version for version, weight in self.weights.items() if weight))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; what is not set is left out."""
        page: dict[str, Any] = {"split": weights_json(self.split)}
        if self.sticky:
            page["sticky"] = self.sticky
        if self.matches:
            page["matches"] = [match.to_json() for match in self.matches]
        if self.fallback:
            page["fallback"] = self.fallback
        if self.deadline:
            page["deadline"] = self.deadline
        if self.idempotent:
            page["idempotent"] = True
        if self.mirror is not None:
            page["mirror"] = self.mirror.to_json()
        return page

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> "Route":
        """Read what `to_json` gave; `Invalid`, `LookupError` or `TypeError` for anything else."""
        matches = tuple(RouteMatch.from_json(match) for match in page.get("matches", ()))
        sticky, fallback = str(page.get("sticky", "")), int(page.get("fallback", 0))
        deadline, idempotent = float(page.get("deadline", 0.0)), page.get("idempotent", False)
        if not isinstance(idempotent, bool):
            raise Invalid(f"idempotent cannot be {idempotent!r}", why="expected true or false")
        split, mirror = split_from_json(page["split"]), Mirror.from_json(page.get("mirror") or {})
        return cls(split, sticky, matches, fallback, deadline, idempotent, mirror)


def sticky_text(sticky: str) -> str:
    """What callers have in common that stay with one version: `API key`, `x-user-id header`."""
    if sticky == BY_KEY:
        return "API key"
    return f"{header_of(sticky).decode()} header"


def header_of(sticky: str) -> bytes:
    """The header that identifies callers; empty where none does."""
    if sticky == BY_REQUEST_ID:
        return _REQUEST_ID.encode()
    return sticky.removeprefix(HEADER).encode() if sticky.startswith(HEADER) else b""


def check_sticky(sticky: str) -> None:
    """`Invalid` for an unknown way to identify callers."""
    if sticky in ("", BY_KEY, BY_REQUEST_ID):
        return
    if not sticky.startswith(HEADER):
        raise Invalid(
            f"sticky cannot be '{sticky[:60]}'",
            why=f"expected {BY_KEY}, {BY_REQUEST_ID} or {HEADER}NAME",
            try_this=f"{HEADER}x-user-id",
        )
    check_header(sticky.removeprefix(HEADER))


def check_header(name: str) -> None:
    """`Invalid` for what is no name of a header in lower case, or one that holds a secret."""
    if not _HEADER_NAME.match(name):
        raise Invalid(
            f"'{name[:60]}' is not a header name",
            why="header names have letters, digits and hyphens, in lower case",
            try_this="x-user-id",
        )
    if name == "authorization":
        raise Invalid("the header 'authorization' cannot be used in a route", try_this=BY_KEY)


def weights_json(split: Split) -> dict[str, int]:
    """A split as JSON: weights by version."""
    return {str(version): weight for version, weight in split.shares}


def split_from_json(page: Mapping[str, Any]) -> Split:
    """Read what `weights_json` gave."""
    return Split.of({int(version): int(weight) for version, weight in page.items()})


def draw_of(*identity: str) -> float:
    """A number in [0, 1) that depends on nothing but the words given: equal everywhere."""
    words = "\0".join(identity).encode(errors="surrogatepass")  # JSON can name half a character
    digest = hashlib.blake2b(words, digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / (1 << 53)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
