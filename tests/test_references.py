"""The reference pages say what the code does."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_reference_pages_are_what_the_code_would_write():
    spec = importlib.util.spec_from_file_location("references", ROOT / "scripts/references.py")
    references = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(references)
    for name, text in references.pages().items():
        written = (ROOT / "docs/reference" / name).read_text("utf-8")
        assert written == text, f"docs/reference/{name} is out of date: run `make docs`"
