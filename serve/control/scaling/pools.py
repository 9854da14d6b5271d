"""Pool settings: what people allow of a pool. A decision of the kind `pool`, by the pool's name.

    {"least": 1, "most": 8, "budget": null, "to_zero": false, "group": "", "cost": 1.0,
     "schedules": [{"days": "mon-fri", "from": "08:00", "to": "18:00", "zone": "Europe/Berlin",
                    "least": 4, "most": null}]}

`budget` is replicas that there are GPUs for. The first schedule that holds has its bounds; what it
demands at least stands even while nobody calls. Pools of one `group` hold each other's models, and
`cost` is what one replica costs per hour, in any unit that the group shares: see
`capacity/scaling/groups.py`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from serve.capacity.scaling.signals import Bounds
from serve.control.decisions import POOL, Decisions
from serve.control.scaling.schedules import Schedule
from serve.core.errors import Invalid

_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\Z")
_MOST_SCHEDULES = 50
_HIGHEST = 100_000  # replicas


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What is allowed of one pool; as it is for a pool of which nobody has set anything."""

    least: int = 1
    most: int = 8
    budget: int | None = None
    to_zero: bool = False
    group: str = ""
    cost: float = 1.0
    schedules: tuple[Schedule, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "PoolSettings":
        """Read its JSON form; what is missing is as usual. `Invalid` says what cannot be."""
        unknown = sorted(body.keys() - set(FIELDS))
        if unknown:
            raise _invalid(f"unknown field '{unknown[0]}'", f"allowed fields: {', '.join(FIELDS)}")
        settings = _read(body)
        settings._check()
        return settings

    def _check(self) -> None:
        """`Invalid` where these cannot be together."""
        if self.group and not _NAME.match(self.group):
            raise _invalid(f"'{self.group}' is not a valid group name", _ALLOWED)
        for schedule in self.schedules:
            schedule.require_zone()
        for text, bounds in self._all_bounds():
            when = f" in '{text}'" if text else ""
            if bounds.least > bounds.most:
                what = f"at least {bounds.least} and at most {bounds.most} replicas{when}"
                raise _invalid(f"{what} is impossible", "'least' is above 'most'")
            if bounds.budget is not None and bounds.least > bounds.budget:
                what = (
                    f"at least {bounds.least} replicas{when} with a budget of {bounds.budget} "
                    "GPUs is impossible"
                )
                raise _invalid(what, "'least' is above 'budget'")

    def bounds(self, wall: float) -> tuple[Bounds, str]:
        """What holds at a moment, in seconds of the epoch, and the schedule that says so, if any.

        With a schedule that demands some at least, a pool does not go to zero.
        """
        for schedule in self.schedules:
            if schedule.holds(wall):
                return self._under(schedule), str(schedule)
        return self._usual, ""

    @property
    def _usual(self) -> Bounds:
        return Bounds(self.least, self.most, self.budget, self.to_zero)

    def _under(self, schedule: Schedule) -> Bounds:
        least = self.least if schedule.least is None else schedule.least
        most = self.most if schedule.most is None else schedule.most
        return Bounds(least, most, self.budget, self.to_zero and schedule.least is None)

    def _all_bounds(self) -> list[tuple[str, Bounds]]:
        return [("", self._usual), *((str(one), self._under(one)) for one in self.schedules)]

    def to_json(self) -> dict[str, Any]:
        """As `of` reads it."""
        return asdict(self) | {"schedules": [one.to_json() for one in self.schedules]}


Usual = Mapping[str, PoolSettings]  # for pools of which nobody has set anything, by name
NOTHING: Usual = MappingProxyType({})
FIELDS = ("least", "most", "budget", "to_zero", "group", "cost", "schedules")
_ALLOWED = (
    "a name has up to 63 letters, digits, '.', '_' and '-', and starts with a letter or a digit"
)


def settings_of(decisions: Decisions, pool: str, usual: Usual = NOTHING) -> PoolSettings:
    """What is allowed of a pool: as decided, or else as is usual for it."""
    body = decisions.entry(POOL, pool).body
    if body is None:
        return usual.get(pool, _USUAL)
    return _read(body)  # it was checked when it was written; here it must not fail


def known_pools(
    decisions: Decisions, present: Iterable[str], models: Iterable[str], usual: Usual = NOTHING
) -> tuple[str, ...]:
    """All pools, by name: with replicas (`present`), with models, with settings, or usual ones."""
    wished = map(decisions.pool, models)
    return tuple(sorted({*present, *wished, *decisions.decided_pools, *usual}))


def usual_of(pool: str, least: int, most: int) -> Usual:
    """The usual settings of one pool, as `--autoscale LEAST..MOST` has them; 0 is down to zero."""
    return MappingProxyType({pool: PoolSettings(max(1, least), most, to_zero=least == 0)})


def check_pool_name(name: str) -> str:
    """Give the name of a pool back, or say what it may be."""
    if not _NAME.match(name):
        raise Invalid(f"'{name}' is not a valid pool name", why=_ALLOWED)
    return name


_USUAL = PoolSettings()


def _read(body: Mapping[str, Any]) -> PoolSettings:
    group, to_zero = body.get("group") or "", body.get("to_zero") or False
    if not isinstance(group, str):
        raise _invalid("'group' is not a string", _ALLOWED)
    if not isinstance(to_zero, bool):
        raise _invalid("'to_zero' is not a boolean", "it has to be true or false")
    schedules = body.get("schedules") or ()
    if not isinstance(schedules, list | tuple) or len(schedules) > _MOST_SCHEDULES:
        raise _invalid(
            "'schedules' is not a valid list", f"at most {_MOST_SCHEDULES} schedules are allowed"
        )
    if not all(isinstance(one, Mapping) for one in schedules):
        raise _invalid(
            "an entry of 'schedules' is not an object",
            "a schedule has the fields days, from, to, zone, least and most",
        )
    return PoolSettings(
        _count("least", body.get("least"), _USUAL.least),
        _count("most", body.get("most"), _USUAL.most),
        None if body.get("budget") is None else _count("budget", body["budget"], 0),
        to_zero,
        group,
        _cost(body.get("cost")),
        tuple(Schedule.of(one) for one in schedules),
    )


def _count(name: str, value: Any, usual: int) -> int:
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _HIGHEST:
        hint = "; use 'to_zero' to allow no replicas in an idle pool" if name == "least" else ""
        raise _invalid(
            f"'{name}' cannot be {value!r}", f"it has to be an integer from 1 to {_HIGHEST}{hint}"
        )
    return value


def _cost(value: Any) -> float:
    if value is None:
        return _USUAL.cost
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(f"'cost' cannot be {value!r}", "it has to be a number, per replica and hour")
    if not (math.isfinite(value) and value >= 0):
        raise _invalid(f"'cost' cannot be {value!r}", "it has to be 0 or more")
    return float(value)


def _invalid(what: str, why: str) -> Invalid:
    return Invalid(what, why=why, try_this="servegate hints set --help")
