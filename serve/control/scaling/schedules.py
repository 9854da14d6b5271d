"""Schedules: bounds that hold at some hours of some days, in the time of a place.

    mon-fri 08:00-18:00 Europe/Berlin least=4

A span that ends before it begins goes on into the next day, and belongs to the day on which it has
begun. When the clocks are put forward, a time that is skipped is the moment of the change; when
they are put back, a span begins at the first of two equal times and ends at the last of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from serve.core.errors import Invalid

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WORDS = {"daily": "mon-sun", "weekdays": "mon-fri", "weekend": "sat-sun"}
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
_WHOLE_DAY = 24 * 60
EXAMPLE = "mon-fri 08:00-18:00 Europe/Berlin least=4"
FIELDS = ("days", "from", "to", "zone", "least", "most")


@dataclass(frozen=True, slots=True)
class Schedule:
    """`days` on which it begins, 0 for Monday; `begins`, `ends` in minutes after midnight.

    `zone` is a name of the IANA database. A bound that is None is as on all other days.
    """

    days: frozenset[int]
    begins: int
    ends: int
    zone: str
    least: int | None = None
    most: int | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Schedule":
        """Read its JSON form; `Invalid` says what is wrong with it. The zone need not be known."""
        unknown = sorted(body.keys() - set(FIELDS))
        if unknown:
            raise _invalid(f"unknown field '{unknown[0]}'; allowed fields: {', '.join(FIELDS)}")
        begins, ends = _minutes(body.get("from")), _minutes(body.get("to"))
        if begins == ends:
            raise _invalid("start and end are the same; a whole day is 00:00-24:00")
        if begins == _WHOLE_DAY:
            raise _invalid("a schedule cannot start at 24:00")
        least, most = (_bound(name, body.get(name)) for name in ("least", "most"))
        if least is None and most is None:
            raise _invalid("it sets neither 'least' nor 'most'")
        zone = body.get("zone") or "UTC"
        if not isinstance(zone, str):
            raise _invalid("'zone' is not a string")
        return cls(_days(body.get("days") or "daily"), begins, ends, zone, least, most)

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read `[DAYS] FROM-TO [ZONE] least=N most=N`, as people write it."""
        try:
            return cls.of(_words(text))
        except Invalid as error:
            raise _invalid(error.why, text) from None

    def __str__(self) -> str:
        """As `parse` reads it."""
        bounds = (("least", self.least), ("most", self.most))
        said = [f"{name}={value}" for name, value in bounds if value is not None]
        hours = f"{_clock(self.begins)}-{_clock(self.ends)}"
        return " ".join((_spelled(self.days), hours, self.zone, *said))

    def to_json(self) -> dict[str, Any]:
        """As `of` reads it."""
        return {
            "days": _spelled(self.days),
            "from": _clock(self.begins),
            "to": _clock(self.ends),
            "zone": self.zone,
            "least": self.least,
            "most": self.most,
        }

    def require_zone(self) -> None:
        """`Invalid` where this machine does not know the zone."""
        if _zone(self.zone) is None:
            raise _invalid(
                f"'{self.zone}' is not a time zone of this machine (IANA names, from tzdata)"
            )

    def holds(self, wall: float) -> bool:
        """Whether its bounds hold at a moment, in seconds of the epoch.

        Never in a zone that this machine does not know.
        """
        zone = _zone(self.zone)
        if zone is None:
            return False
        now = datetime.fromtimestamp(wall, zone)
        today = now.date()
        return any(self._covers(now, day) for day in (today, today - timedelta(days=1)))

    def _covers(self, now: datetime, day: date) -> bool:
        """Whether what begins on this day has begun, and has not ended."""
        if day.weekday() not in self.days:
            return False
        midnight = datetime.combine(day, time(), now.tzinfo)
        begins = midnight + timedelta(minutes=self.begins)
        ends = midnight + timedelta(minutes=self.ends)
        if self.ends < self.begins:
            ends += timedelta(days=1)
        if begins <= now < ends:  # by what the clock shows: right where it is put forward
            return True
        return begins.astimezone(UTC) <= now.astimezone(UTC) < ends.replace(fold=1).astimezone(UTC)


def _words(text: str) -> dict[str, Any]:
    """The JSON form of what people write, unchecked but for words that are too many."""
    body: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals:
            if name not in ("least", "most") or not _is_count(value):
                raise _invalid(f"'{word}' is not in the form least=N or most=N")
            part: dict[str, Any] = {name: int(value)}
        elif word[0].isdigit():
            begins, _, ends = word.partition("-")
            part = {"from": begins, "to": ends}
        else:
            part = {"zone" if "from" in body else "days": word}
        if body.keys() & part.keys():
            raise _invalid(f"'{word}' sets the same value again")
        body |= part
    return body


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a path, a folder, a file that is none
        return None


def _days(text: Any) -> frozenset[int]:
    found: set[int] = set()
    if not isinstance(text, str):
        raise _invalid("'days' is not a string such as mon-fri")
    for part in _WORDS.get(text.lower(), text.lower()).split(","):
        first, dash, last = part.partition("-")
        if first not in _DAYS or (dash and last not in _DAYS):
            raise _invalid(
                f"'{part}' is not a day; allowed are {', '.join(_DAYS)}, ranges such as "
                "mon-fri, and daily"
            )
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found.update(day % 7 for day in range(begin, end + 1 if end >= begin else end + 8))
    return frozenset(found)


def _spelled(days: frozenset[int]) -> str:
    return ",".join(
        _DAYS[begin] if begin == end else f"{_DAYS[begin]}-{_DAYS[end]}"
        for begin, end in _runs(sorted(days))
    )


def _runs(days: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of days, in the order of the week."""
    begin = days[0]
    for day, after in zip(days, [*days[1:], 99], strict=True):
        if after != day + 1:
            yield begin, day
            begin = after


def _minutes(text: Any) -> int:
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise _invalid(
            f"'{text}' is not a time of day" if text else "the hours FROM-TO are missing"
        )
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _bound(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _invalid(f"'{name}' is not an integer of 1 or more")
    return value


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _invalid(why: str, text: str = "") -> Invalid:
    what = f"'{text}' is not a valid schedule" if text else "the schedule cannot be read"
    return Invalid(what, why=why, try_this=f"--schedule '{EXAMPLE}'")
