"""What a load test is asked: its options, and its requests of files and random values."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from serve.core.errors import Invalid
from serve.tensors.metadata import Metadata, TensorSpec
from serve.workbench.loadtest import encoded_bodies
from serve.workbench.loadtest.cli.command import command_of
from serve.workbench.loadtest.cli.inputs import EncodedInputs, InputRequest, read_requests
from serve.workbench.loadtest.cli.options import endpoint, ways_of
from serve.workbench.loadtest.cli.single_run import CallPace
from serve.workbench.loadtest.encoded_bodies import (
    CallWay,
    PreparedCall,
    RequestedVersion,
    cut,
    lanes,
)
from serve.workbench.loadtest.plan import Closed, LaneProtocol, RateShape

HTTP, GRPC = "http://gateway:8000", "gateway:8001"


def test_protocols_may_have_weights_and_go_to_their_own_ports() -> None:
    (way,) = ways_of((), HTTP, GRPC)
    assert (way.protocol, way.address, way.weight) == (
        LaneProtocol.HTTP_BINARY,
        "gateway:8000",
        1.0,
    )
    ways = ways_of(("http-json,grpc=2.5", "tfserving"), HTTP, GRPC)
    assert [(way.protocol, way.address, way.weight) for way in ways] == [
        (LaneProtocol.HTTP_JSON, "gateway:8000", 1.0),
        (LaneProtocol.GRPC, "gateway:8001", 2.5),
        (LaneProtocol.TFSERVING, "gateway:8000", 1.0),
    ]
    for text in ("udp", "grpc=0", "grpc=nan", "grpc=x", "grpc,grpc=2", ""):
        with pytest.raises(Invalid):
            ways_of((text,), HTTP, GRPC)


def test_an_address_has_a_port_and_says_whether_it_speaks_tls() -> None:
    assert endpoint("https://gateway/sub/") == ("gateway:443", True, "/sub")
    assert endpoint("[::1]:9000") == ("[::1]:9000", False, "")
    assert endpoint("gateway") == ("gateway:80", False, "")
    for text in ("", "http://", "http://a:b", "ftp://a"):
        with pytest.raises(Invalid):
            endpoint(text)


def test_a_run_needs_a_rate_unless_its_arrivals_have_one() -> None:
    with pytest.raises(Invalid, match="the rate of the load test is missing"):
        CallPace().loop()
    arrivals, _ = CallPace(arrivals="ramp:10..30").loop()
    assert arrivals is not None and arrivals.shape is RateShape.RAMP
    assert CallPace(rate=5, users=10, think=0.1).loop() == (None, Closed(10, 0.1, 5))
    assert str(CallPace(rate=5, users=10)) == "10 users at 5 calls/s"
    with pytest.raises(Invalid, match="--think"):
        CallPace(rate=5, think=1.0).loop()


def told(*words: str, **environment: str) -> str:
    """What `command_of` says of a command with such options."""
    app = typer.Typer()

    @app.command()
    def run(
        context: typer.Context,
        url: Annotated[str, typer.Option(envvar="URL")] = "http://here",
        inputs: Annotated[list[str] | None, typer.Option("--input")] = None,
        rate: float = 0.0,
        json: bool = False,
        share: Annotated[bool, typer.Option("--share")] = False,
    ) -> None:
        print(command_of(context))

    done = CliRunner().invoke(app, words, env=environment, prog_name="servegate load run")
    return done.output.strip()


def test_the_command_of_a_report_has_what_was_given_and_nothing_else() -> None:
    words = ("--rate", "2", "--input", "x=@a b.npy", "--input", "y=random", "--share", "--json")
    said = told(*words)
    assert said == ("servegate load run --input 'x=@a b.npy' --input y=random --rate 2.0 --share")


def test_the_command_of_a_report_has_what_the_environment_gave_without_secrets() -> None:
    assert told(URL="http://ann:word@there/x") == "servegate load run --url http://there/x"


# --- requests ------------------------------------------------------------------------------------


X = TensorSpec("x", "FP32", (-1, 2))
Y = TensorSpec("y", "FP32", (-1, 3))
STEPS = {"inputs": {"x": {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32"}}}


def read(
    *texts: str, inputs: tuple[TensorSpec, ...] = (X,), preprocessing: Any = None, **wish: Any
) -> EncodedInputs:
    given = InputRequest(tuple(texts) or ("random",), **wish)
    metadata = Metadata(by_name(*inputs), by_name(Y))
    return read_requests("m", metadata, given, lambda: preprocessing or {})


def by_name(*specs: TensorSpec) -> Mapping[str, TensorSpec]:
    return MappingProxyType({each.name: each for each in specs})


def rows(count: int) -> np.ndarray[Any, Any]:
    return np.arange(2 * count, dtype=np.float32).reshape(count, 2)


def saved(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return f"@{path}"


def test_random_requests_differ_and_come_again_with_their_seed() -> None:
    first, again, other = (read(random_bodies=3, seed=seed).requests for seed in (1, 1, 2))
    assert len(first) == 3 and not np.array_equal(first[0].tensors["x"], first[1].tensors["x"])
    assert np.array_equal(first[2].tensors["x"], again[2].tensors["x"])
    assert not np.array_equal(first[2].tensors["x"], other[2].tensors["x"])
    batches = read(random_bodies=2, batch=5).requests
    assert [(one.tensors["x"].shape, one.rows) for one in batches] == [((5, 2), 5)] * 2


def test_a_file_of_many_rows_is_cut_into_requests_and_the_rest_is_told(tmp_path: Path) -> None:
    ready = read(saved(tmp_path / "a.npz", x=rows(7)), batch=3)
    assert [one.tensors["x"].tolist() for one in ready.requests] == [
        rows(7)[:3].tolist(),
        rows(7)[3:6].tolist(),
    ]
    assert ready.notes == ("the last 1 rows are not used: a request has 3 rows",)
    assert len(read(saved(tmp_path / "a.npz", x=rows(4))).requests) == 4
    (only,) = read(saved(tmp_path / "a.npz", x=rows(1)), batch=3).requests
    assert only.tensors["x"].shape == (3, 2), "one row fills a batch"


def test_several_pictures_are_rows(tmp_path: Path) -> None:
    for name, grey in (("dark", 10), ("light", 200)):
        Image.new("L", (2, 1), grey).save(tmp_path / f"{name}.png")
    pictures = [f"@{tmp_path / name}.png" for name in ("dark", "light")]
    spec = TensorSpec("x", "FP32", (-1, 1, 2, 1))
    ready = read(*pictures, inputs=(spec,), preprocessing=STEPS)
    assert [one.tensors["x"].max() for one in ready.requests] == [10, 200]


def test_random_values_fill_the_input_that_a_file_leaves_open(tmp_path: Path) -> None:
    ready = read(saved(tmp_path / "a.npz", x=rows(4)), "random", inputs=(X, Y), batch=2)
    assert [{n: t.shape for n, t in one.tensors.items()} for one in ready.requests] == [
        {"x": (2, 2), "y": (2, 3)}
    ] * 2
    assert ready.notes == ()


def test_a_model_without_batches_gets_whole_arrays(tmp_path: Path) -> None:
    spec = TensorSpec("x", "FP32", (7, 2))
    (only,) = read(saved(tmp_path / "a.npz", x=rows(7)), inputs=(spec,)).requests
    assert only.tensors["x"].shape == (7, 2) and only.rows == 1
    with pytest.raises(Invalid, match="--batch 2"):
        read(inputs=(spec,), batch=2)


@pytest.mark.parametrize("name", ["y", "labels"])
def test_expected_classes_follow_their_rows(tmp_path: Path, name: str) -> None:
    inputs = saved(tmp_path / "a.npz", x=rows(5))
    labels = saved(tmp_path / "b.npz", **{name: np.array([4, 3, 2, 1, 0], np.uint8)})
    ready = read(inputs, batch=2, expect=labels)
    assert [one.expected for one in ready.requests] == [(4, 3), (2, 1)] and ready.output == "y"


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    five = saved(tmp_path / "a.npz", x=rows(5))
    np.save(tmp_path / "b.npy", np.array([1, 2]))
    with pytest.raises(Invalid, match="2 expected classes do not match 5 rows of input"):
        read(five, expect=f"y=@{tmp_path / 'b.npy'}")
    for text in ("z=@b.npy", "y=b.npy", "y=@nowhere.npy"):
        with pytest.raises(Invalid):
            read(five, expect=text)
    with pytest.raises(Invalid, match="random"):
        read("random", expect=saved(tmp_path / "b.npz", y=np.zeros(16, np.int64)))
    with pytest.raises(Invalid, match="different numbers of --input"):
        read("x=@a.npy", "x=@b.npy", "y=@c.npy", inputs=(X, Y))
    with pytest.raises(Invalid, match="different numbers of rows"):
        cut({"x": rows(4), "y": rows(3)}, {"x", "y"}, 1)
    with pytest.raises(Invalid, match="--batch 5"):
        cut({"x": rows(4)}, {"x"}, 5)


def test_a_lane_has_every_request_in_its_protocol() -> None:
    requests = cut({"x": rows(2)}, {"x"}, 1)
    ways = (
        CallWay(LaneProtocol.HTTP_JSON, "h:1", prefix="/sub"),
        CallWay(LaneProtocol.GRPC, "h:2", 2.0),
    )
    made = lanes(ways, requests, RequestedVersion("m", "3", {"x": "FP32"}, headers=(("a", "b"),)))
    assert [(one.path, one.weight, len(one.payloads)) for one in made] == [
        ("/sub/v2/models/m/versions/3/infer", 1.0, 2),
        ("/inference.GRPCInferenceService/ModelInfer", 2.0, 2),
    ]
    assert {one.headers for one in made} == {(("a", "b"),)}


def test_more_bodies_than_memory_should_hold_are_refused_before_they_are_made() -> None:
    wide = np.broadcast_to(np.float32(0), (1, encoded_bodies.MOST // 8))
    requests = [PreparedCall({"x": wide})] * 3
    with pytest.raises(Invalid, match="more than 256 MiB"):
        lanes(
            (CallWay(LaneProtocol.HTTP_BINARY, "h:1"),),
            requests,
            RequestedVersion("m", "", {"x": "FP32"}),
        )
