"""Which values of the manifests are facts that the program shares, and which are not, with reasons.

A claim says what of a value is shared, and so how it can be wrong:

| how | what is shared | what is wrong |
|---|---|---|
| EXACT | the value | none; a number one off; a word with another letter |
| BOTH | the value, and its key | the same, and another key |
| KEY | the key; the value is the operator's | another key |
| GIVEN | the value, where there is one | as EXACT, but for none |
| FLAG | the flag and the kind of its value | another flag; a value of no kind |
| NAMES | names in an expression of Prometheus | each of them with another letter |
| ENOUGH | that it is enough | 1 |
| SOME | that there is a value that is not 0 | none, 0 |
| NOT | nothing, for the reason that stands there |  |

Patterns are tried from the top, against `Kind/name path`. Every value has to have one.
"""

from dataclasses import dataclass
from functools import cache

from k8s.facts.manifests import Leaf, pattern
from k8s.facts.table import CLAIMS

EXACT, BOTH, KEY, GIVEN = "EXACT", "BOTH", "KEY", "GIVEN"
FLAG, NAMES, ENOUGH, SOME, NOT = "FLAG", "NAMES", "ENOUGH", "SOME", "NOT"
# Flags whose value is the operator's.
# Flags that say what is so without them: nothing is wrong if one is left out.
USUAL_WORDS = (
    *("--http-port=8000", "--grpc-port=8001", "--metrics-port=8002"),  # Triton's
    "--model-control-mode=none",
    "--storage=$(SERVEGATE_STORAGE)",  # an agent asks the control plane for blobs
)
FREE_FLAGS = ("--exit-timeout-secs", "--workers", "--log-format", "--access-log-share")


@dataclass(frozen=True, slots=True)
class Claim:
    """What is shared of a value, and what it is or why it is none."""

    how: str
    why: str


def claim_of(leaf: Leaf) -> Claim | None:
    """The first claim that is about this value."""
    where = str(leaf)
    found = _found(where)
    if found is None or not isinstance(leaf.value, str):
        return found
    if where.startswith("Certificate/") and leaf.value.count(".") > 1 and ".svc" not in leaf.value:
        return Claim(NOT, "a name of the operator's")
    if leaf.value in USUAL_WORDS:
        return Claim(GIVEN, found.why)
    is_word = ".args[" in where or ".command[" in where
    is_command = ".args[" in where and leaf.steps[-1] in (0, 1) and leaf.value.isalpha()
    if (
        is_word
        and not is_command
        and (where.startswith("Job/") or leaf.value.partition("=")[0] in FREE_FLAGS)
    ):
        is_flag = leaf.value.startswith("--") or found.how == NOT
        return Claim(FLAG, found.why) if is_flag else Claim(NOT, "what a Job is to work on")
    return found


@cache
def _found(where: str) -> Claim | None:
    return next((claim for text, claim in _claims() if pattern(text).fullmatch(where)), None)


@cache
def _claims() -> tuple[tuple[str, Claim], ...]:
    found = []
    for line in CLAIMS.strip().replace("\n|", "|").splitlines():
        if line.strip() and not line.startswith("#"):
            how, rest = line.split(maxsplit=1)
            text, _, why = rest.partition("  ")
            found.append((text.strip(), Claim(how, why.strip())))
    return tuple(found)
