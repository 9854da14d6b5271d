"""Which pools may have no replica, as people have set it."""

from collections.abc import Callable, Iterable

from serve.app.pools import usual_pools
from serve.control.decisions import Decisions
from serve.control.scaling.pools import settings_of
from serve.settings import Settings


def may_begin_empty(settings: Settings) -> bool:
    """Whether a control plane may begin without any: who starts Tritons waits for its hints, or
    they are yet to be discovered.

    Whatever the fewest are at the start: people may have allowed none since then.
    """
    return settings.autoscale_bounds is not None or bool(settings.discover)


def may_sleep_of(settings: Settings, decisions: Decisions) -> Callable[[str], bool]:
    """Whether a pool may have none; a schedule that wants some now has no say in that."""
    usual = usual_pools(settings)
    return lambda pool: settings_of(decisions, pool, usual).to_zero


def may_all_sleep(settings: Settings, decisions: Decisions, models: Iterable[str]) -> bool:
    """Whether there may be no replica at all: these models have pools, none of which needs any."""
    may_sleep = may_sleep_of(settings, decisions)
    pools = {pool for model in models for pool in decisions.pools(model)}
    return bool(pools) and all(map(may_sleep, pools))
