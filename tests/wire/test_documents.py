"""JSON that is read while all other calls wait is bounded before it is read."""

import pytest
from refusals import refusal

from serve.core.errors import TooMuchJson
from serve.wire import documents


def test_a_document_within_the_bounds_is_read() -> None:
    assert documents.read(b'{"a": [1, 2]}') == {"a": [1, 2]}
    assert len(documents.read(b"[" + b"1," * (documents.MOST_VALUES - 2) + b"1]")) > 1 << 16
    with pytest.raises(ValueError, match="Expecting"):
        documents.read(b"[")


def test_a_document_that_others_would_wait_for_is_not_read() -> None:
    for text in (
        b"[" + b"1," * documents.MOST_VALUES + b"1]",
        b"[" + b"[]," * documents.MOST_VALUES + b"1]",
        b"[" * (documents.MOST_VALUES + 1),
        b"{" * (documents.MOST_VALUES + 1),
        b'"' + b"a" * documents.MOST_BYTES + b'"',
    ):
        refusal(TooMuchJson, documents.read, text)
