"""What a gRPC call is named, and what the access log is told of it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    INFER,
    LOOPS,
    STREAM,
    Client,
    Received,
    Scene,
    answer,
    frame,
    infer,
    message,
    play,
)
from tritonclient.grpc import service_pb2

from serve.core.calls import Account
from serve.proxy.journal import Ended

ONE = snapshot(view(target(1, "a")))
TWO_MODELS = snapshot(view(target(1, "a")), view(target(1, "a", model="n"), name="n"))
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the access log."""

    model: str
    replica: str
    code: str
    account: Account


@dataclass(slots=True)
class Lines:
    """An access log that takes every call."""

    lines: list[Line] = field(default_factory=list)

    def takes(self) -> bool:
        return True

    def write(self, ended: Ended) -> None:
        assert ended.call.origin is not None
        line = Line(ended.call.model, ended.replica.name, ended.code, ended.account())
        self.lines.append(line)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def logged(
    scenario: Callable[[Scene, Client], Awaitable[Received]], loop: str, now: object = ONE
) -> tuple[Received, list[Line]]:
    """What a client hears, and the lines of the log."""
    journal = Lines()

    async def act(scene: Scene) -> Received:
        return await scenario(scene, await scene.client())

    received = play(act, loop, now, journal=journal)  # type: ignore[arg-type]
    return received, journal.lines


def one_call(metadata: Sequence[tuple[str, str]] = (), body: bytes | None = None) -> object:
    async def scenario(scene: Scene, client: Client) -> Received:
        client.call(1, body, metadata=metadata)
        [received] = await scene.over(client, 1)
        return received

    return scenario


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["a", "x" * 128, "9d1b7e5c-6c0b-4b62", "with spaces, and such"])
def test_a_call_keeps_the_name_that_its_caller_gave(loop: str, given: str) -> None:
    received, [line] = logged(one_call([("x-request-id", given)]), loop)  # type: ignore[arg-type]
    assert received.request_id == line.account.request_id == given


@pytest.mark.parametrize("given", ["", "x" * 129, "größe", "tab\there", "\x7f"])
def test_a_name_that_is_not_fit_for_a_log_is_replaced(loop: str, given: str) -> None:
    received, [line] = logged(one_call([("x-request-id", given)]), loop)  # type: ignore[arg-type]
    assert received.request_id == line.account.request_id != given
    assert received.request_id.isascii()


def test_calls_without_a_name_get_one_each(loop: str) -> None:
    async def scenario(scene: Scene) -> set[str]:
        clients = [await scene.client(), await scene.client()]
        names = set()
        for client in clients:
            for number in (1, 3, 5):
                client.call(number)
                names.add((await scene.over(client, number))[0].request_id)
        return names

    assert len(play(scenario, loop, ONE)) == 6


@pytest.mark.parametrize(
    ("body", "metadata"),
    [
        (infer("absent"), ()),
        (b"\xff", ()),
        (infer(), (("grpc-timeout", "5X"),)),
        (infer(), (("content-type", "text/plain"),)),
    ],
)
def test_refusals_tell_the_name_of_the_call_too(
    loop: str, body: bytes, metadata: Sequence[tuple[str, str]]
) -> None:
    named = [("x-request-id", "mine"), *metadata]
    received, _ = logged(one_call(named, body), loop)  # type: ignore[arg-type]
    assert received.request_id == "mine"


def test_a_fresh_name_in_each_call_does_not_push_other_heads_out_of_the_memory(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        for number in range(1, 200, 2):
            fresh = [("x-request-id", f"{number:08}"), ("traceparent", TRACE[:-8] + f"{number:08}")]
            client.call(number, metadata=fresh)
            await scene.over(client, number)
        return scene.listener.known_heads

    assert play(scenario, loop, ONE) <= 1


# --- accounts ------------------------------------------------------------------------------------


def test_a_line_says_what_came_went_and_took_time(loop: str) -> None:
    body = infer(size=50_000)

    async def scenario(scene: Scene, client: Client) -> Received:
        scene.triton.answers = False
        scene.plane.clock.now += 1
        client.open(1, metadata=[("traceparent", TRACE)])
        whole = message(body)
        for at in range(0, len(whole), 1 << 14):
            client.send(frame(DATA, 0, 1, whole[at : at + (1 << 14)]))
        await until(client.ping())
        scene.plane.clock.now += 10
        client.send(frame(DATA, END_STREAM, 1))
        await until(lambda: bool(scene.triton.calls) and scene.triton.calls[0].ended)
        scene.plane.clock.now += 2.5
        scene.triton.head(1)
        scene.triton.data(1, message(answer())[:10])
        await until(lambda: len(client.streams[1].body) == 10)
        scene.plane.clock.now += 5
        scene.triton.data(1, message(answer())[10:])
        scene.triton.end(1)
        [received] = await scene.over(client, 1)
        return received

    received, [line] = logged(scenario, loop)
    account = line.account
    assert (line.model, line.replica, line.code) == ("m", "a", "OK")
    assert account.traceparent == TRACE
    assert account.received == len(message(body))
    assert account.answered == len(received.body)
    assert account.upstream == 2.5
    assert account.peer.startswith("127.0.0.1:")


def test_an_answer_that_comes_as_a_whole_is_accounted_for_too(loop: str) -> None:
    async def scenario(scene: Scene, client: Client) -> Received:
        for number in (1, 3):  # the second one takes the short way
            client.call(number)
            await until(lambda number=number: client.streams[number].ended)  # type: ignore[misc]
        scene.triton.answers = False
        client.call(5)
        await until(lambda: len(scene.triton.calls) == 3 and scene.triton.calls[2].ended)
        scene.plane.clock.now += 3
        scene.triton.answer(5)
        [received] = await scene.over(client, 5)
        return received

    received, lines = logged(scenario, loop)
    assert [line.account.answered for line in lines] == [len(received.body)] * 3
    assert [line.account.upstream for line in lines] == [0, 0, 3]


def test_a_call_that_triton_never_got_has_no_time_there(loop: str) -> None:
    _, [line] = logged(one_call(body=infer("absent")), loop)  # type: ignore[arg-type]
    assert (line.model, line.replica, line.code) == ("absent", "", "unknown_model")
    assert (line.account.upstream, line.account.answered) == (0, 0)
    assert line.account.received == len(message(infer("absent")))


def said(model: str) -> bytes:
    inner = service_pb2.ModelInferResponse(model_name=model)
    return service_pb2.ModelStreamInferResponse(infer_response=inner).SerializeToString()


def test_a_stream_has_one_line_for_each_model_and_none_for_its_messages(loop: str) -> None:
    async def scenario(scene: Scene, client: Client) -> Received:
        scene.triton.says = lambda request: said("m")
        client.open(1, STREAM, metadata=[("x-request-id", "mine")])
        for model in ("m", "n", "m", "absent", "m"):
            client.send(frame(DATA, 0, 1, message(infer(model))))
        client.send(frame(DATA, END_STREAM, 1))
        [received] = await scene.over(client, 1)
        return received

    _, lines = logged(scenario, loop, TWO_MODELS)
    size, there = len(infer()), len(message(said("m")))
    assert sorted((one.model, one.code, one.account.received) for one in lines) == [
        ("absent", "unknown_model", len(infer("absent"))),
        ("m", "OK", 3 * size),
        ("n", "OK", size),
    ]
    assert [one.account.answered for one in lines if one.code == "OK"] == [there, there]
    assert {one.account.request_id for one in lines} == {"mine"}


def test_models_of_a_stream_that_ends_badly_end_with_it(loop: str) -> None:
    async def scenario(scene: Scene, client: Client) -> Received:
        scene.triton.answers = False
        client.open(1, STREAM)
        for model in ("m", "n"):
            client.send(frame(DATA, 0, 1, message(infer(model))))
        await until(lambda: sum(bool(one.body) for one in scene.triton.calls) == 2)
        scene.triton.refuse(1, 13, "broken")
        [received] = await scene.over(client, 1)
        scene.triton.refuse(3, 0, "")
        return received

    received, lines = logged(scenario, loop, TWO_MODELS)
    assert received.status == 13
    assert [(one.model, one.code) for one in lines] == [("m", "INTERNAL"), ("n", "INTERNAL")]


def test_the_method_of_a_call_stays_the_same_whatever_it_is_named(loop: str) -> None:
    async def scenario(scene: Scene, client: Client) -> Received:
        client.call(1, metadata=[("x-request-id", "mine"), ("traceparent", TRACE)])
        [received] = await scene.over(client, 1)
        head = scene.triton.calls[0].heads[0]
        assert (head[":path"], head["x-request-id"], head["traceparent"]) == (INFER, "mine", TRACE)
        return received

    logged(scenario, loop)
