"""hadolint finds nothing in the container files. They are not built here: that takes a registry."""

import json
import subprocess
from pathlib import Path

from k8s.checks import TOOLS
from k8s.rendering import FOLDER

FILES = sorted(FOLDER.glob("images/*Dockerfile"))


def findings(*files: Path) -> list[str]:
    """What hadolint says of these files, as `FILE:LINE CODE MESSAGE`."""
    done = subprocess.run(
        [TOOLS / "hadolint", "--format", "json", "--no-fail", *files],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        f"{Path(each['file']).name}:{each['line']} {each['code']} {each['message']}"
        for each in json.loads(done.stdout)
    ]


def test_hadolint_finds_nothing_in_the_container_files() -> None:
    assert FILES
    assert findings(*FILES) == []
