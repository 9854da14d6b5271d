"""What configurations mean, in words."""

from pathlib import Path

from serve.triton.batching_text import meaning
from serve.triton.config import parse


def test_a_configuration_is_told_in_exactly_the_words_of_the_list() -> None:
    """Each paragraph of the list is a configuration, behind `#`, and what is said of its fields."""
    paragraphs = Path(__file__).with_name("batching_words.txt").read_text().split("\n\n")
    assert len(paragraphs) == 18
    for paragraph in paragraphs:
        configuration, *lines = paragraph.splitlines()
        found = meaning(parse(configuration.removeprefix("#")))
        assert [f"{one.field}: {one.text}" for one in found] == lines, configuration
