"""The retry rule: another replica is tried only after what was provably not executed.

| what happened                                                        | executed? | next       |
|----------------------------------------------------------------------|-----------|------------|
| connecting failed, not a byte was written (`NotSent`)                | no        | another    |
| a complete 503 / UNAVAILABLE that Triton itself wrote                | no        | another    |
| "unknown model" from a replica that the snapshot says has it         | no        | another    |
| reset, EOF or timeout after bytes were written (`OutcomeUnknown`)    | perhaps   | fail       |
| any other answer                                                     | yes       | the answer |

Never the same replica twice, at most two extra attempts, never for a model that serves sequences,
whose state lives on one replica.
"""

EXTRA_ATTEMPTS = 2


def attempts_allowed(*, stateful: bool) -> int:
    """How many replicas may be tried for a call, the first one included."""
    return 1 if stateful else 1 + EXTRA_ATTEMPTS
