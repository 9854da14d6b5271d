"""The committed corpus, and the same few hundred mutants of it: nothing breaks a target.

Hostile cases have the names of the fault list (C4, C14, C15, C16): a file says what it is for.
"""

import random

import pytest
from fuzz.mutating import GRAMMARS, Grammar, mutator
from fuzz.targets import CORPUS, TARGETS, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

_EXAMPLES = 150  # for each target
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


def _mutate(data: bytes, largest: int) -> bytes:
    """What libFuzzer does to bytes, in small: a byte is changed, put in, or taken out."""
    chance = random.Random(data)
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed) + 1)
        changed[at : at + chance.randrange(2)] = bytes(
            chance.choices(range(256), k=chance.randrange(2))
        )
    return bytes(changed[:largest])


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_of_the_corpus_break_nothing(name: str) -> None:
    good = [path.read_bytes() for path in seeds(name)]
    change = mutator(GRAMMARS.get(name, Grammar(lambda data: [data])), _mutate)

    @settings(max_examples=_EXAMPLES)
    @given(st.sampled_from(good), st.integers(0, (1 << 32) - 1), st.integers(1, 4))
    def play(data: bytes, seed: int, times: int) -> None:
        for turn in range(times):
            data = change(data, 4096, seed + turn)
        TARGETS[name](data)

    play()
