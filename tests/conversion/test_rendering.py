"""The page of a conversion: whole, without script, and no model can add anything to it."""

from dataclasses import replace
from html.parser import HTMLParser
from types import MappingProxyType

from serve.conversion.drawing import histogram_svg, times_svg
from serve.conversion.rendering import factor, limit_of, render_html, share
from serve.conversion.report import Stage
from serve.conversion.request import Precision, Request
from serve.tensors.judging import Tolerance

from .reports import ERROR, PASSED, REFUSED, report

HOSTILE = "<script>alert(1)</script>\"'&"


class Seen(HTMLParser):
    """Which tags and texts a page has, and which of its tags are not closed."""

    EMPTY = frozenset({"meta", "br"})

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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_tells_the_verdict_the_steps_and_how_to_do_it_again() -> None:
    seen = Seen(render_html(report()))
    said = " ".join(seen.words)
    assert seen.open == []
    said = said.replace("\N{NO-BREAK SPACE}", " ")
    for words in ("Passed.", "worst error 2e-06", "2.50 s", "944 MB", "2.21.0", "--seed 7"):
        assert words in said


def test_the_verdict_comes_before_everything_else() -> None:
    for one, verdict in ((report(), "Passed."), (report(REFUSED), "Refused.")):
        words = [each.strip() for each in Seen(render_html(one)).words if each.strip()]
        assert words.index(verdict) == words.index("Conversion of saved", 1) + 1


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


def test_the_limit_is_drawn_and_what_lies_above_it_stands_out() -> None:
    drawn = histogram_svg(ERROR, 1e-7)
    assert "limit 1e-07" in drawn and drawn.count('class="limit"') == 1
    assert drawn.count('class="over"') == 2
    assert 'class="over"' not in histogram_svg(ERROR)


def test_the_limit_is_that_of_the_precision_unless_somebody_has_said_another() -> None:
    half = report(request=Request("saved", precision=Precision.FP16))
    said = report(request=Request("saved", tolerances={"y": Tolerance(atol=0.5)}))
    scaled = replace(ERROR, scale=2.0)
    assert [limit_of(one, scaled) for one in (report(), half, said)] == [1e-4, 1e-2, 0.25]
    assert limit_of(report(), replace(ERROR, scale=0.0)) is None


def test_stages_are_drawn_in_proportion_to_their_time() -> None:
    drawn = times_svg([Stage("open", 1.0), Stage("convert", 2.0)], ["open", "<convert>"])
    assert 'width="165.0"' in drawn and 'width="330.0"' in drawn and "&lt;convert&gt;" in drawn
    assert times_svg([], []) == ""


def test_what_is_allowed_is_told_as_a_share_or_as_so_many_times() -> None:
    shown = [factor(each) for each in (0.00738, 0.288, 1.5, 48_300.0, 1e300)]
    assert shown == ["0.74 %", "29 %", "150 %", "48,300 times", "any number of times"]


def test_a_hundred_percent_are_all() -> None:
    assert [share(1.0), share(0.99999), share(0.5)] == ["100 %", "99.99 %", "50 %"]
