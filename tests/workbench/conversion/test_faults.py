"""What the catalogue of faults advises exists."""

import re
from pathlib import Path

import pytest

from serve.workbench.conversion.faults import FAULTS

OPTION = re.compile(r"--[a-z][a-z0-9-]+")
COMMANDS = (Path(__file__).parents[3] / "docs/reference/commands.md").read_text()


@pytest.mark.parametrize("code", FAULTS)
def test_an_option_that_a_hint_names_is_one(code: str) -> None:
    assert set(OPTION.findall(FAULTS[code].hint)) <= set(OPTION.findall(COMMANDS))
