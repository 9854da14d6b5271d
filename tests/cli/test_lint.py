"""`servegate model lint`: what is said of folders, repositories and single files."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serve.cli.lint import lint

REPOSITORY = Path(__file__).parents[2] / "model_repo"
app = typer.Typer()
app.command()(lint)


def run(*words: str) -> tuple[int, str]:
    """Exit status and standard output."""
    ended = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return ended.exit_code, ended.stdout


def findings(*words: str) -> tuple[int, list[dict[str, Any]]]:
    code, said = run(*words, "--json")
    return code, json.loads(said)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A repository with a good model and one whose configuration has another shape."""
    shutil.copytree(REPOSITORY / "digits", tmp_path / "good")
    wrong = shutil.copytree(REPOSITORY / "digits", tmp_path / "wrong")
    for folder in (tmp_path / "good", wrong):
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace('name: "digits"', ""))
    text = (wrong / "config.pbtxt").read_text()
    (wrong / "config.pbtxt").write_text(text.replace("[ 8, 8, 1 ]", "[ 8, 8 ]"))
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.mark.slow
def test_every_version_of_every_model_of_a_repository_is_looked_at(broken: Path) -> None:
    code, found = findings(str(broken))
    assert code == 1
    assert [(each["model"], each["version"], len(each["findings"])) for each in found] == [
        ("good", 1, 0),
        ("good", 2, 0),
        ("wrong", 1, 2),
        ("wrong", 2, 2),
    ]
    rules = [each["rule"] for each in found[2]["findings"]]
    assert rules == ["dims-count", "preprocessing-unfit"]
    code, said = run(str(broken / "wrong"))
    head, *rows = said.splitlines()
    assert code == 1
    assert head.split("\t") == ["model", "version", "severity", "field", "why", "fix", "rule"]
    assert [row.split("\t")[:3] for row in rows][:2] == [
        ["wrong", "1", "error"],
        ["wrong", "1", "warning"],
    ]


def test_without_errors_it_ends_with_0_and_a_good_model_says_nothing(broken: Path) -> None:
    assert run(str(REPOSITORY / "digits")) == (0, "")
    code, found = findings(str(REPOSITORY / "digits" / "1" / "model.onnx"))
    assert (code, found) == (0, [{"model": "model", "version": 1, "findings": []}])
    config = broken / "good" / "config.pbtxt"
    config.write_text('name: "other"\n' + config.read_text())
    code, found = findings(str(broken / "good"))
    assert code == 0
    assert [each["severity"] for each in found[0]["findings"]] == ["warning"]
    with pytest.raises(Exception, match="there is no model"):
        run(str(broken / "notes"))


def test_what_cannot_be_read_is_a_finding_and_the_rest_is_still_looked_at(broken: Path) -> None:
    (broken / "good" / "1" / "model.onnx").write_bytes(b"hello")
    code, found = findings(str(broken / "good"))
    assert code == 1
    assert [[finding["rule"] for finding in each["findings"]] for each in found] == [
        ["unreadable"],
        [],
    ]


def test_a_part_that_is_not_in_the_folder_may_be_published(tmp_path: Path) -> None:
    (tmp_path / "both" / "1").mkdir(parents=True)
    (tmp_path / "both" / "config.pbtxt").write_text(
        'platform: "ensemble" max_batch_size: 8 '
        'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] } '
        'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } '
        'ensemble_scheduling { step { model_name: "part" model_version: -1 '
        'input_map { key: "a" value: "x" } output_map { key: "b" value: "y" } } }'
    )
    code, [found] = findings(str(tmp_path / "both"))
    [one] = [each for each in found["findings"] if each["rule"] == "step-unknown"]
    assert (code, one["severity"]) == (0, "warning")
    assert one["why"] == "there is no model 'part' in this folder"
    assert "already published" in one["fix"] and "publish it first" not in one["fix"]
