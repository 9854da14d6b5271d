"""The page of a conversion: whole, without script, and no model can add anything to it."""

from dataclasses import replace
from types import MappingProxyType

from workbench.loadtest.pages import HOSTILE, Seen

from serve.tensors.expected_outputs import Tolerance
from serve.workbench.conversion.report_charts import histogram_svg
from serve.workbench.conversion.report_page import limit_of, render_html
from serve.workbench.conversion.request import ConversionRequest, Precision

from .reports import ERROR, PASSED, report


def test_the_page_tells_the_verdict_the_steps_and_how_to_do_it_again() -> None:
    seen = Seen(render_html(report()))
    for words in ("Passed.", "largest error 2e-06", "2.50 s", "944 MB", "2.21.0", "--seed 7"):
        assert words in seen.said


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
    assert "50 up to 1e-8, 30 up to 1e-7, 9 up to 1e-6, 1 above 1e-6" in drawn
    assert histogram_svg(replace(ERROR, histogram=(0, 0, 0, 0))) == ""


def test_the_limit_is_drawn_and_what_lies_above_it_stands_out() -> None:
    drawn = histogram_svg(ERROR, 1e-7)
    assert "limit 1e-07" in drawn and drawn.count('class="limit"') == 1
    assert drawn.count('class="over"') == 2
    assert 'class="over"' not in histogram_svg(ERROR)


def test_the_limit_is_that_of_the_precision_unless_somebody_has_said_another() -> None:
    half = report(request=ConversionRequest("saved", precision=Precision.FP16))
    said = report(request=ConversionRequest("saved", tolerances={"y": Tolerance(atol=0.5)}))
    scaled = replace(ERROR, scale=2.0)
    assert [limit_of(one, scaled) for one in (report(), half, said)] == [1e-4, 1e-2, 0.25]
    assert limit_of(report(), replace(ERROR, scale=0.0)) is None
