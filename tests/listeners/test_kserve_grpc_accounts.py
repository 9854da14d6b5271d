"""The request id of a gRPC call, and what the access log says of it."""

from builders import snapshot, target, until, view
from grpc_wire import DATA, END_STREAM, INFER, STREAM, answer, frame, infer, message
from listeners.grpc_scene import ONE, Scene, in_scene, send
from tritonclient.grpc import service_pb2

TWO_MODELS = snapshot(view(target(1, "a")), view(target(1, "a", model="n"), name="n"))
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# --- request ids ---------------------------------------------------------------------------------


@in_scene(ONE, is_logged=True)
async def test_a_request_id_that_does_not_fit_into_a_log_is_replaced(scene: Scene) -> None:
    good = ("a", "x" * 128, "9d1b7e5c-6c0b-4b62", "with spaces, and such")
    for given in (*good, "", "x" * 129, "größe", "tab\there", "\x7f"):
        received = await scene.ask(infer(), INFER, [("x-request-id", given)])
        assert received.request_id == scene.log.lines[-1].account.request_id
        assert (received.request_id == given) == (given in good), given
        assert received.request_id.isascii()


@in_scene(ONE, is_logged=True)
async def test_refusals_have_the_request_id_too_and_took_no_time_at_triton(scene: Scene) -> None:
    for body, *more in (
        (infer("absent"),),
        (b"\xff",),
        (infer(), ("grpc-timeout", "5X")),
        (infer(), ("content-type", "text/plain")),
    ):
        received = await scene.ask(body, INFER, [("x-request-id", "mine"), *more])
        assert received.request_id == "mine", body
    line = scene.log.lines[0]
    assert (line.model, line.replica, line.code) == ("absent", "", "unknown_model")
    assert (line.account.upstream, line.account.answered) == (0, 0)
    assert line.account.received == len(message(infer("absent")))


@in_scene(ONE)
async def test_fresh_request_ids_push_no_other_head_out_of_the_memory(scene: Scene) -> None:
    client = await scene.client()
    for number in range(1, 200, 2):
        fresh = f"{number:08}"
        metadata = [("x-request-id", fresh), ("traceparent", TRACE[:-8] + fresh)]
        received = await scene.call(client, number, infer(), INFER, metadata)
        head = scene.triton.calls[-1].heads[0]
        assert received.request_id == head["x-request-id"] == fresh
        assert head["traceparent"] == TRACE[:-8] + fresh
    assert scene.listener.known_heads <= 1
    made = {(await scene.call(client, number)).request_id for number in range(201, 207, 2)}
    made.add((await scene.ask()).request_id)
    assert len(made) == 4  # without one each call gets its own


# --- accounts ------------------------------------------------------------------------------------


@in_scene(ONE, is_logged=True)
async def test_a_line_says_what_came_went_and_took_time(scene: Scene) -> None:
    whole = message(infer(size=50_000))
    scene.silence()
    client = await scene.client()
    scene.plane.clock.now += 1
    client.open(1, metadata=[("traceparent", TRACE)])
    send(client, whole, ends=False)
    await until(client.ping())
    scene.plane.clock.now += 10
    client.send(frame(DATA, END_STREAM, 1))
    await until(lambda: [call.ended for call in scene.triton.calls] == [True])
    scene.plane.clock.now += 2.5
    scene.triton.head(1)
    scene.triton.data(1, message(answer())[:10])
    await until(lambda: len(client.streams[1].body) == 10)
    scene.plane.clock.now += 5
    scene.triton.data(1, message(answer())[10:])
    scene.triton.end(1)
    [received] = await scene.over(client, 1)
    [line] = scene.log.lines
    account = line.account
    assert (line.model, line.replica, line.code) == ("m", "a", "OK")
    assert (account.received, account.answered) == (len(whole), len(received.body))
    assert (account.traceparent, account.upstream) == (TRACE, 2.5)
    assert account.peer.startswith("127.0.0.1:")


@in_scene(ONE, is_logged=True)
async def test_an_answer_that_comes_as_a_whole_is_accounted_for_too(scene: Scene) -> None:
    client = await scene.client()
    for number in (1, 3):  # the second one takes the short way
        await scene.call(client, number)
    scene.silence()
    client.call(5)
    await until(lambda: [call.ended for call in scene.triton.calls] == [True] * 3)
    scene.plane.clock.now += 3
    scene.triton.answer(5)
    [received] = await scene.over(client, 5)
    accounts = [line.account for line in scene.log.lines]
    assert [one.answered for one in accounts] == [len(received.body)] * 3
    assert [one.upstream for one in accounts] == [0, 0, 3]


@in_scene(TWO_MODELS, is_logged=True)
async def test_a_stream_has_one_line_in_the_log_for_each_model(scene: Scene) -> None:
    response = service_pb2.ModelStreamInferResponse()
    response.infer_response.model_name = "m"
    said = response.SerializeToString()
    scene.triton.says = lambda request: said
    client = await scene.client()
    client.open(1, STREAM, metadata=[("x-request-id", "mine")])
    for model in ("m", "n", "m", "absent", "m"):
        client.send(frame(DATA, 0, 1, message(infer(model))))
    client.send(frame(DATA, END_STREAM, 1))
    await scene.over(client, 1)
    lines, size = scene.log.lines, len(infer())
    assert sorted((one.model, one.code, one.account.received) for one in lines) == [
        ("absent", "unknown_model", len(infer("absent"))),
        ("m", "OK", 3 * size),
        ("n", "OK", size),
    ]
    answered = [one.account.answered for one in lines if one.code == "OK"]
    assert answered == [len(message(said))] * 2
    assert {one.account.request_id for one in lines} == {"mine"}


@in_scene(TWO_MODELS, is_logged=True)
async def test_models_of_a_stream_that_ends_badly_end_with_it(scene: Scene) -> None:
    scene.silence()
    client = await scene.client()
    client.open(1, STREAM)
    for model in ("m", "n"):
        client.send(frame(DATA, 0, 1, message(infer(model))))
    await until(lambda: len(scene.triton.messages) == 2)
    scene.triton.refuse(1, 13, "broken")
    [received] = await scene.over(client, 1)
    scene.triton.refuse(3, 0, "")
    assert received.status == 13
    codes = [(one.model, one.code) for one in scene.log.lines]
    assert codes == [("m", "INTERNAL"), ("n", "INTERNAL")]
