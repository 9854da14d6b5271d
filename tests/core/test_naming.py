"""Which words may name models and labels, and how versions are called in Triton."""

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.names import check_label, check_model_name, model_of, physical_name


def test_a_model_may_be_called() -> None:
    for name in ("digits", "m", "_m", "9", "resnet-50.v2", "A_b", "x" * 255):
        assert check_model_name(name) == name, name


def test_a_model_may_not_be_called() -> None:
    for name in (
        *("", "stats", ".hidden", "-m", "a b", "a/b", "a%2Fb", "größe", "a:b", "m\n"),
        *("\nm", "x" * 256),
    ):
        refusal(Invalid, check_model_name, name)


def test_a_label_may_be_called() -> None:
    for name in ("stable", "candidate-2", "_x", "v1.2", "x" * 63):
        assert check_label(name) == name, name


def test_a_label_may_not_be_called() -> None:
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
