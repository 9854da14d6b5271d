"""The page of a conversion: whole, without script, and no model can add anything to it."""

from dataclasses import replace
from html.parser import HTMLParser
from types import MappingProxyType

from serve.conversion.rendering import histogram_svg, render_html, share

from .reports import ERROR, PASSED, REFUSED, report

HOSTILE = "<script>alert(1)</script>\"'&"


class Seen(HTMLParser):
    """Which tags and texts a page has, and which of its tags are not closed."""

    EMPTY = frozenset({"meta", "rect"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_tells_the_verdict_the_steps_and_how_to_do_it_again() -> None:
    seen = Seen(render_html(report()))
    said = " ".join(seen.words)
    assert seen.open == []
    for words in ("Passed.", "worst error 2e-06", "2.50 s", "944 MB", "2.21.0", "--seed 7"):
        assert words in said


def test_a_refusal_names_its_code() -> None:
    page = render_html(report(REFUSED))
    assert "Refused." in page and "numbers_differ" in page


def test_whatever_a_model_is_called_stays_text() -> None:
    one = replace(ERROR, name=HOSTILE)
    hostile = report(
        replace(PASSED, summary=HOSTILE, outputs=(one,)),
        source=MappingProxyType({"name": HOSTILE, HOSTILE: [HOSTILE], "more": {HOSTILE: HOSTILE}}),
        warnings=(HOSTILE,),
        command=HOSTILE,
    )
    seen = Seen(render_html(hostile))
    assert "script" not in seen.tags
    assert any(HOSTILE in words for words in seen.words)


def test_a_histogram_has_a_bar_for_each_bin_that_is_not_empty_and_says_it_in_words() -> None:
    drawn = histogram_svg(ERROR)
    assert drawn.count("<rect") == 4
    assert "50 up to 1e-8, 30 up to 1e-7, 9 up to 1e-6, 1 up to more" in drawn
    assert histogram_svg(replace(ERROR, histogram=(0, 0, 0, 0))) == ""


def test_a_hundred_percent_are_all() -> None:
    assert [share(1.0), share(0.99999), share(0.5)] == ["100 %", "99.99 %", "50 %"]
