"""Control characters in the texts of others are spelled out."""

from serve.core.texts import all_printable, printable


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    for text, shown in (
        ("plain", "plain"),
        ("für 日本語 🙂", "für 日本語 🙂"),
        ("two\nlines\tand a tab\r\n", "two\nlines\tand a tab\r\n"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten", "over\\x0dwritten"),
        ("a\x00b\x7f\x08", "a\\x00b\\x7f\\x08"),
        ("txt\u202egnp.exe", "txt\\u202egnp.exe"),
    ):
        assert printable(text) == shown, text


def test_every_text_of_an_answer_is_printable() -> None:
    answer = {"a\x1b": ["\x1b", 1, None, {"b": "\x9b", "c": 1.5}]}
    assert all_printable(answer) == {"a\\x1b": ["\\x1b", 1, None, {"b": "\\x9b", "c": 1.5}]}
