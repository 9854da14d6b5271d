"""Words: which may name models and labels, what objectives say, and what a terminal is shown."""

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.names import check_label, check_model_name, model_of, physical_name
from serve.core.objectives import Objective
from serve.core.texts import all_printable, printable


def test_models_and_labels_may_be_called_so_and_not_otherwise() -> None:
    for name in ("digits", "m", "_m", "9", "resnet-50.v2", "A_b", "x" * 255):
        assert check_model_name(name) == name, name
    for name in (
        *("", "stats", ".hidden", "-m", "a b", "a/b", "a%2Fb", "größe", "a:b", "m\n"),
        *("\nm", "x" * 256),
    ):
        refusal(Invalid, check_model_name, name)
    for name in ("stable", "candidate-2", "_x", "v1.2", "x" * 63):
        assert check_label(name) == name, name
    for name in (
        *("", "1", "01", "1a", ".x", "-x", "a b", "a/b", "a:b", "é", "stable\n", "x" * 64),
        *("latest", "versions", "labels"),
    ):
        refusal(Invalid, check_label, name)


def test_a_group_goes_by_the_models_name_and_the_begin_of_its_digest() -> None:
    assert physical_name("digits", "0123456789abcdef") == "digits--01234567"


def test_a_name_in_triton_belongs_to_the_model_that_it_begins_with() -> None:
    for physical, model in (
        ("m", "m"),
        ("m--0a1b2c3d", "m"),
        ("n--0a1b2c3d", "n--0a1b2c3d"),  # a model may be called so
        ("n--0a1b2c3d--99999999", "n--0a1b2c3d"),
        ("m--0a1b2c3", "m--0a1b2c3"),
        ("m--0A1B2C3D", "m--0A1B2C3D"),
        ("other--0a1b2c3d", "other--0a1b2c3d"),
        ("--0a1b2c3d", "--0a1b2c3d"),
    ):
        assert model_of(physical, {"m", "n", "n--0a1b2c3d"}) == model, physical


def test_an_objective_is_a_quantile_and_a_limit() -> None:
    for text, quantile, limit in (
        ("p99<50ms", 99.0, 0.05),
        ("p99.9<1.5s", 99.9, 1.5),
        (" p50 < 2ms ", 50.0, 0.002),
        ("p99.999<0.5ms", 99.999, 0.0005),
    ):
        assert Objective.parse(text) == Objective(quantile, limit), (text, quantile)


def test_anything_else_is_no_objective() -> None:
    for text in (
        *("", "p99", "99<50ms", "p99<50", "p99<50us", "p100<5ms", "p99>5ms", "p0<5ms", "p99<0ms"),
        *("p99<-5ms", "p99<5ms p50<1ms", "p<5ms", "p99<5 ms"),
    ):
        refusal(Invalid, Objective.parse, text)


def test_an_objective_reads_what_it_writes() -> None:
    for text in (
        *("p99<50ms", "p99.9<1500ms", "p50<0.25ms", "p99<3600s", "p99<1234567ms", "p99.999<1ms"),
    ):
        objective = Objective.parse(text)
        assert Objective.parse(str(objective)) == objective, text


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
