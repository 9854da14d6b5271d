"""Profiles of shapes: what goes without saying, what has to be said, and each mismatch."""

from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.plans.profiles import Profile, parse_profile, profiles


def taking(**shapes: tuple[int, ...] | None) -> ModelSignature:
    inputs = tuple(ModelTensor(name, "FP32", shape) for name, shape in shapes.items())
    return ModelSignature("onnx", inputs, (ModelTensor("y", "FP32", (-1, 10)),))


def why(signature: ModelSignature, largest: int, *given: str) -> str:
    refused = refusal(ConversionFailed, profiles, signature, largest, map(parse_profile, given))
    assert refused.code == "trt_profile"
    return refused.why


def test_a_batch_goes_from_one_to_the_largest_and_is_best_there() -> None:
    found = profiles(taking(x=(-1, 8, 8, 1)), 32)
    assert found == (Profile("x", (1, 8, 8, 1), (32, 8, 8, 1), (32, 8, 8, 1)),)


def test_what_is_given_takes_the_place_of_what_goes_without_saying() -> None:
    given = parse_profile("x=1x8x8x1:8x8x8x1:32x8x8x1")
    found = profiles(taking(x=(-1, 8, 8, 1), z=(-1, 3)), 32, [given])
    assert found == (given, Profile("z", (1, 3), (32, 3), (32, 3)))
    assert str(given) == "x=1x8x8x1:8x8x8x1:32x8x8x1"


def test_inputs_of_a_fixed_shape_have_no_profile() -> None:
    assert profiles(taking(x=(1, 8), scale=()), 0) == ()
    assert profiles(taking(x=(1, 8)), 0, [parse_profile("x=1x8:1x8:1x8")]) == ()


def test_every_free_dimension_beside_the_batch_has_to_be_said() -> None:
    assert "its shape is ?x?x?x3" in why(taking(x=(-1, -1, -1, 3)), 8)
    assert "max_batch_size is 0" in why(taking(x=(-1, 3)), 0)
    given = parse_profile("x=1x32x32x3:8x224x224x3:8x512x512x3")
    assert profiles(taking(x=(-1, -1, -1, 3)), 8, [given]) == (given,)


def test_a_profile_that_does_not_fit_is_refused_with_its_input() -> None:
    for given, said in (
        ("y=1x8:1x8:1x8", "no such input; it has x"),
        ("x=1x8x1:8x8x1:32x8x1", "1x8x1 has 3 dimensions, the model has 2"),
        ("x=1x8:8x9:32x9", "dimension 1 is 8 in the model and 9 in 8x9"),
        ("x=1x8:64x8:32x8", "not min ≤ opt ≤ max"),
        ("x=2x8:8x8:32x8", "Triton sends batches of 1, but the smallest is 2"),
        ("x=1x8:8x8:16x8", "Triton sends batches of up to 32, but the largest is 16"),
        ("x=0x8:0x8:32x8", "a dimension of 0x8 is 0"),
    ):
        told = why(taking(x=(-1, 8)), 32, given)
        assert said in told
        assert told.startswith(f"input '{given[0]}': ")


def test_an_input_that_is_given_twice_or_has_no_rank_is_refused() -> None:
    assert "two profiles" in why(taking(x=(-1, 8)), 8, "x=1x8:8x8:8x8", "x=1x8:4x8:8x8")
    assert "number of dimensions" in why(taking(x=None), 8)
    assert "number of dimensions" in why(taking(x=None), 8, "x=1x8:8x8:8x8")


def test_a_name_that_no_list_of_shapes_can_hold_is_refused() -> None:
    for name in ("a:b", "a,b", "a'b", "a b", "a=b"):
        assert "cannot have a profile" in why(taking(**{name: (-1, 8)}), 8)


def test_a_profile_that_cannot_be_read_is_refused() -> None:
    short = ("", "x", "x=", "x=1x8", "x=1x8:8x8")
    for text in (*short, "x=1x8:8x8:8x8:9x8", "x=1x8:8xx8:8x8", "=1:2:3"):
        assert refusal(ConversionFailed, parse_profile, text).code == "trt_profile"
