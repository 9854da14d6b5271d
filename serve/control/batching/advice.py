"""The table of advice: what may be wrong with how a version is batched, as its calls show it.

A rule that is not in this table does not exist. Each has a situation of its own in the tests, in
which it speaks and no other. Nothing is ever changed by advice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from serve.control.batching import advice_rules
from serve.control.batching.advice_rules import Findings
from serve.control.batching.situation import Situation


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its stable name, and the function that looks."""

    name: str
    check: Callable[[Situation], Findings]

    @property
    def meaning(self) -> str:
        """What the rule is about, in one sentence."""
        return (self.check.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding of one rule; as text it is a sentence."""

    rule: str
    field: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}. Try: {self.fix} [{self.rule}]"


RULES: tuple[Rule, ...] = (
    # whether calls are put together
    Rule("batching-off", advice_rules.batching_off),
    Rule("clients-batch", advice_rules.clients_batch),
    # how long they wait for that
    Rule("delay-beyond-objective", advice_rules.delay_beyond_objective),
    Rule("delay-without-company", advice_rules.delay_without_company),
    Rule("delay-in-vain", advice_rules.delay_in_vain),
    Rule("preferred-unreached", advice_rules.preferred_unreached),
    # how many fit
    Rule("largest-below-objective", advice_rules.largest_below_objective),
    Rule("largest-beyond-objective", advice_rules.largest_beyond_objective),
    Rule("largest-unreached", advice_rules.largest_unreached),
    # who executes them
    Rule("instances-starved", advice_rules.instances_starved),
    Rule("instances-idle", advice_rules.instances_idle),
    # what stands before
    Rule("cache-useless", advice_rules.cache_useless),
    Rule("queue-rejects", advice_rules.queue_rejects),
)


def advise(situation: Situation) -> tuple[Advice, ...]:
    """What the last minutes say, in the order of the table.

    Nothing below `ENOUGH` calls, nor for an ensemble, which runs nothing itself.
    """
    if not situation.is_enough or situation.batched.ensemble:
        return ()
    return tuple(Advice(rule.name, *finding) for rule in RULES for finding in rule.check(situation))
