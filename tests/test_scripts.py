"""Scripts: the one that makes the environment, and the one that writes the reference pages."""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PIP = '#!/bin/sh\necho "$@" >>"$(dirname "$0")/../asked"\necho "Collecting something"\n'


class Environment:
    """A folder that looks like one, whose pip only writes down what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        python = folder / "bin" / "python"
        python.write_text(PIP)
        python.chmod(0o755)

    def install(self, extras: str) -> str:
        """What the script says."""
        done = subprocess.run(
            [str(ROOT / "scripts" / "bootstrap.sh"), extras],
            env={**os.environ, "VENV": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stdout
        return done.stderr

    @property
    def asked(self) -> list[str]:
        """The extras of each call of pip."""
        told = self._folder / "asked"
        lines = told.read_text().splitlines() if told.exists() else []
        assert all(" -q" not in line for line in lines)
        return [line.rpartition(".[")[2].rstrip("]") for line in lines]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


@pytest.mark.slow
def test_what_a_larger_installation_has_is_not_installed_again(environment: Environment) -> None:
    for extras in ("local,dev,convert,load", "local,convert", "local", "local,load"):
        environment.install(extras)
    assert environment.asked == ["local,dev,convert,load"]


def test_what_is_missing_is_installed_and_what_pip_does_is_shown(environment: Environment) -> None:
    environment.install("local")
    said = environment.install("local,convert")
    assert "2 GB" in said and "Collecting something" in said
    assert environment.asked == ["local", "local,convert"]


def test_the_pipeline_demo_brings_no_tools_of_developers() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "pipeline-demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    called = [line for line in done.stdout.splitlines() if "scripts/" in line]
    assert called == ["scripts/bootstrap.sh local,convert", "scripts/pipeline-deps.sh"]


def test_the_reference_pages_are_what_the_code_would_write():
    spec = importlib.util.spec_from_file_location("references", ROOT / "scripts/references.py")
    references = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(references)
    for name, text in references.pages().items():
        written = (ROOT / "docs/reference" / name).read_text("utf-8")
        assert written == text, f"docs/reference/{name} is out of date: run `make docs`"
