"""The committed corpus, played on every run: seeds, hostile cases, and what fuzzing found."""

from pathlib import Path

import pytest
from fuzz.known import KNOWN
from fuzz.targets import CORPUS, TARGETS, seeds

_LARGEST = 8 << 10  # bytes of a file
_TOTAL = 500 << 10


def _cases() -> list[object]:
    cases = []
    for name in TARGETS:
        for path in seeds(name):
            why = KNOWN.get(f"{name}/{path.name}")
            marks = (
                [pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)] if why else []
            )
            cases.append(pytest.param(name, path, id=f"{name}/{path.name}", marks=marks))
    return cases


@pytest.mark.parametrize(("name", "path"), _cases())
def test_a_file_of_the_corpus_breaks_nothing(name: str, path: Path) -> None:
    TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_seeds_and_none_is_large(name: str) -> None:
    found = seeds(name)
    assert len(found) >= 3
    assert all(path.stat().st_size <= _LARGEST for path in found)


def test_every_folder_of_the_corpus_belongs_to_a_target_and_all_of_it_is_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) <= _TOTAL


def test_what_is_known_to_be_broken_is_in_the_corpus() -> None:
    assert [name for name in KNOWN if not (CORPUS / name).is_file()] == []
