"""Exports: what spreadsheets would run as a formula stays a text."""

import csv
import io
from types import MappingProxyType

from serve.workbench.evaluation.exports import csv_pieces
from serve.workbench.evaluation.results import OutputKind, RowResult, SideOutput


def exported(*rows):
    text = "".join(csv_pieces(rows, OutputKind.VALUES))
    return list(csv.DictReader(io.StringIO(text)))


def test_a_text_that_looks_like_a_formula_gets_an_apostrophe():
    slices = MappingProxyType({"site": '@SUM("x")'})
    one = RowResult(0, "=1+1", "a\nb", slices, SideOutput("-1", None, None, 2.5), None)
    (row,) = exported(one)
    assert (row["label"], row["slice_site"]) == ("'=1+1", '\'@SUM("x")')
    assert (row["predicted_a"], row["name"], row["milliseconds_a"]) == ("-1", "a\nb", "2.5")
    assert (row["score_a"], row["bucket"]) == ("", "wrong")
    assert "predicted_b" not in row
