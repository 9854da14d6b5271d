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
class AdviceRule:
    """One rule: its stable name, and the function that looks."""

    name: str
    check: Callable[[Situation], Findings]

    @property
    def meaning(self) -> str:
        """What the rule is about, in one sentence."""
        return (self.check.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class BatchingAdvice:
    """One finding of one rule; as text it is a sentence."""

    rule: str
    field: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}. Try: {self.fix} [{self.rule}]"


RULES: tuple[AdviceRule, ...] = (
    # whether calls are put together
    AdviceRule("batching-off", advice_rules.batching_off),
    AdviceRule("clients-batch", advice_rules.clients_batch),
    # how long they wait for that
    AdviceRule("delay-beyond-objective", advice_rules.delay_beyond_objective),
    AdviceRule("delay-without-company", advice_rules.delay_without_company),
    AdviceRule("delay-in-vain", advice_rules.delay_in_vain),
    AdviceRule("preferred-unreached", advice_rules.preferred_unreached),
    # how many fit
    AdviceRule("largest-below-objective", advice_rules.largest_below_objective),
    AdviceRule("largest-beyond-objective", advice_rules.largest_beyond_objective),
    AdviceRule("largest-unreached", advice_rules.largest_unreached),
    # who executes them
    AdviceRule("instances-starved", advice_rules.instances_starved),
    AdviceRule("instances-idle", advice_rules.instances_idle),
    # what stands before
    AdviceRule("cache-useless", advice_rules.cache_useless),
    AdviceRule("queue-rejects", advice_rules.queue_rejects),
)


def advise(situation: Situation) -> tuple[BatchingAdvice, ...]:
    """What the last minutes say, in the order of the table.

    Nothing below `ENOUGH` calls, nor for an ensemble, which runs nothing itself.
    """
    if not situation.is_enough or situation.batched.ensemble:
        return ()
    return tuple(
        BatchingAdvice(rule.name, *finding) for rule in RULES for finding in rule.check(situation)
    )
