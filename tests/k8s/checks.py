"""What checkov finds, beside what it may find.

`k8s/checkov.yaml` holds its own settings. A check that is skipped there says for which objects, and
why, on its line:

    - CKV_K8S_11  # Deployment/servegate-gateway Deployment/servegate-control: a limit of CPU …

So the same finding at another object is red, and so is a skip that nothing needs any more.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from k8s.cluster import ROOT

TOOLS = ROOT / ".venv-k8s" / "bin"

_LINE = re.compile(r"\s+- (?P<check>[A-Z0-9_]+)  # (?P<where>\S+(?: \S+)*?): (?P<reason>.+)")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A check that an object (`Deployment/servegate-gateway`) or a file does not pass."""

    check: str
    where: str
    what: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Skip:
    """A check that need not be passed by what is named so; `*` stands for anything."""

    check: str
    where: str

    def covers(self, finding: Finding) -> bool:
        return self.check == finding.check and fnmatch(finding.where, self.where)


def skips(file: Path) -> list[Skip]:
    """Those of a settings file; every one has to say where and why."""
    found = []
    for line in file.read_text().splitlines():
        if re.match(r"\s+- [A-Z]+[A-Z0-9_]*\d", line):
            told = _LINE.fullmatch(line)
            assert told is not None, f"{file.name} does not say where and why: {line.strip()}"
            found += [Skip(told["check"], where) for where in told["where"].split()]
    return found


def unforeseen(findings: Iterable[Finding], allowed: Iterable[Skip]) -> list[Finding]:
    return sorted(each for each in findings if not any(skip.covers(each) for skip in allowed))


def needless(findings: Iterable[Finding], allowed: Iterable[Skip]) -> list[Skip]:
    found = list(findings)
    return sorted(skip for skip in allowed if not any(skip.covers(each) for each in found))
