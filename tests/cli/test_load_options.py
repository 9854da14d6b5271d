"""The options of load tests: lanes, addresses, and the command that does the same again."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from serve.core.errors import Invalid
from serve.workbench.loadtest.cli.command import command_of
from serve.workbench.loadtest.cli.options import endpoint, ways_of
from serve.workbench.loadtest.cli.single_run import CallPace
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
