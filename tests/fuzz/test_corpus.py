"""The committed corpus, played on every run: seeds, hostile cases, and what fuzzing found.

Hostile cases have the names of the fault list (C4, C14, C15, C16): a file says what it is for.
"""

import pytest
from fuzz.targets import CORPUS, TARGETS, seeds

_LARGEST = 8 << 10  # bytes of a file
_TOTAL = 500 << 10


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of_a_target_breaks_nothing(name: str) -> None:
    for path in seeds(name):
        try:
            TARGETS[name](path.read_bytes())
        except Exception as error:
            error.add_note(f"with corpus/{name}/{path.name}")
            raise


def test_every_target_has_seeds_and_all_of_the_corpus_is_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    sizes = [path.stat().st_size for name in TARGETS for path in seeds(name)]
    assert max(sizes) <= _LARGEST
    assert sum(sizes) <= _TOTAL
    assert [name for name in TARGETS if len(seeds(name)) < 3] == []
