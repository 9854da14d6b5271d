"""What differs between two configurations, and what is wrong with one: for people at a shell."""

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from serve.cli.output import say
from serve.core.errors import CheckFailed, ServegateError

if TYPE_CHECKING:
    from serve.triton.config import Configuration

Finding = Mapping[str, Any]
_FINDING = re.compile(
    r"(?P<field>(?:flavour '[^']*': )?.+?): (?P<why>.+)\. Fix: (?P<fix>.+) \[(?P<rule>[a-z0-9-]+)\]"
)
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def difference(present: "Configuration", after: "Configuration") -> list[str]:
    """The lines of config.pbtxt that go and come, with those around them; none when none does."""
    from serve.triton.canonical import canonical_text

    one, other = (canonical_text(each).splitlines() for each in (present, after))
    return list(difflib.unified_diff(one, other, "before", "after", lineterm=""))


def print_difference(lines: Iterable[str]) -> None:
    """In red and green on a terminal."""
    if not sys.stdout.isatty():
        for line in lines:
            print(line)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line, style=_COLOURS.get(line[:1], "")))


def say_findings(findings: Iterable[Finding]) -> None:
    """What lint says, a line each."""
    for one in findings:
        say(f"{one['severity']}: {one['field']}: {one['why']}. Fix: {one['fix']} [{one['rule']}]")


def refused(error: ServegateError) -> ServegateError:
    """An error of the gateway; a failed check has a sentence for each finding."""
    if error.code != CheckFailed.code:
        return error
    findings = re.split(r"(?<=\]); ", error.why)
    return CheckFailed(error.what, findings, try_this=error.try_this)


def findings_in(error: CheckFailed) -> list[Finding]:
    """The findings of a failed check, for tables and programs."""
    read = [(each, _FINDING.fullmatch(each)) for each in error.findings]
    return [
        {"severity": "error"}
        | (found.groupdict() if found else {"rule": "refused", "field": "", "why": each, "fix": ""})
        for each, found in read
    ]
