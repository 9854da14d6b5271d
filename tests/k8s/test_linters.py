"""checkov finds nothing in what is rendered but what may be found, hadolint nothing in the images.

`k8s/checkov.yaml` holds checkov's settings. A check that is skipped there says for which objects,
and why, on its line:

    - CKV_K8S_11  # Deployment/servegate-gateway Deployment/servegate-control: a limit of CPU …

So the same finding at another object is red, and so is a skip that nothing needs any more. The
container files are not built here: that takes a registry.
"""

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from k8s.cluster import ROOT
from k8s.rendering import FOLDER, Rendering

SETTINGS = FOLDER / "checkov.yaml"
TOOLS = ROOT / ".venv-k8s" / "bin"

LINE = re.compile(r"\s+- (?P<check>[A-Z0-9_]+)  # (?P<where>\S+(?: \S+)*?): (?P<reason>.+)")


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
            told = LINE.fullmatch(line)
            assert told is not None, f"{file.name} does not say where and why: {line.strip()}"
            found += [Skip(told["check"], where) for where in told["where"].split()]
    return found


def unforeseen(findings: Iterable[Finding], allowed: Iterable[Skip]) -> list[Finding]:
    return sorted(each for each in findings if not any(skip.covers(each) for skip in allowed))


def needless(findings: Iterable[Finding], allowed: Iterable[Skip]) -> list[Skip]:
    found = list(findings)
    return sorted(skip for skip in allowed if not any(skip.covers(each) for each in found))


@pytest.fixture(scope="module")
def findings(
    rendered: dict[str, Rendering], tmp_path_factory: pytest.TempPathFactory
) -> list[Finding]:
    folder = tmp_path_factory.mktemp("checkov")
    distinct = {
        json.dumps(each, sort_keys=True): each
        for rendering in rendered.values()
        if rendering.is_whole
        for each in rendering.objects
    }
    for number, text in enumerate(distinct):
        (folder / f"{number}.json").write_text(text)
    for file in FOLDER.glob("images/*Dockerfile"):
        (folder / file.name).write_text(file.read_text())
    reports = checkov(folder)
    assert {each["check_type"] for each in reports} == {"kubernetes", "dockerfile"}
    assert all(each["summary"]["parsing_errors"] == 0 for each in reports)
    objects = dict(enumerate(distinct.values()))
    return [
        finding_of(failed, objects)
        for report in reports
        for failed in report["results"]["failed_checks"]
    ]


def checkov(folder: Path) -> list[dict[str, Any]]:
    """A report for each of its frameworks."""
    done = subprocess.run(
        [
            *(str(TOOLS / "checkov"), "--directory", str(folder)),
            *("--framework", "kubernetes", "dockerfile"),
            *("--output", "json", "--compact", "--soft-fail", "--skip-download"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told if isinstance(told, list) else [told]


def finding_of(failed: dict[str, Any], objects: dict[int, dict[str, Any]]) -> Finding:
    file = Path(failed["file_path"])
    where = file.name
    if file.suffix == ".json":
        found = objects[int(file.stem)]
        where = f"{found['kind']}/{found['metadata']['name']}"
    return Finding(failed["check_id"], where, failed["check_name"])


def test_checkov_finds_nothing_but_what_is_explained(findings: list[Finding]) -> None:
    assert unforeseen(findings, skips(SETTINGS)) == []


def test_nothing_is_skipped_that_checkov_does_not_find(findings: list[Finding]) -> None:
    assert needless(findings, skips(SETTINGS)) == []


def test_hadolint_finds_nothing_in_the_container_files() -> None:
    files = sorted(FOLDER.glob("images/*Dockerfile"))
    done = subprocess.run(
        [TOOLS / "hadolint", "--format", "json", "--no-fail", *files],
        capture_output=True,
        text=True,
        check=True,
    )
    assert files
    assert json.loads(done.stdout) == []
