"""What programs read stays as it is, while the words for people change."""

import difflib

import pytest
from golden import forms


@pytest.fixture(scope="module")
def present():
    return forms.texts()


@pytest.mark.parametrize("file", ["api.txt", "metrics.txt", "options.txt", "stored.json"])
def test_a_golden_file_says_what_the_program_does(present, file):
    golden = (forms.FOLDER / file).read_text().splitlines()
    changed = [*difflib.unified_diff(golden, present[file].splitlines(), lineterm="", n=2)]
    assert not changed, "name it in the CHANGELOG, then run tests/golden/forms.py\n" + "\n".join(
        changed
    )
