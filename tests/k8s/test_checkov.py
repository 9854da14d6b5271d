"""checkov's opinion of everything that is rendered, and of the container files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from k8s.checks import TOOLS, Finding, needless, skips, unforeseen
from k8s.rendering import FOLDER, Rendering

SETTINGS = FOLDER / "checkov.yaml"


@pytest.fixture(scope="module")
def findings(
    rendered: dict[str, Rendering], tmp_path_factory: pytest.TempPathFactory
) -> list[Finding]:
    """All that checkov finds; it runs once."""
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
