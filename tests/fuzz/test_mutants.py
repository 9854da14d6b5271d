"""A few hundred mutants of the corpus on every run: the same ones each time, without coverage."""

import random

import pytest
from fuzz.mutating import GRAMMARS, Grammar, mutator
from fuzz.targets import TARGETS, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

_EXAMPLES = 150


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
