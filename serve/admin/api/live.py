"""What the fleet does now, over the admin API: ten minutes of history, and a stream of seconds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.types import Receive, Scope, Send

from serve.admin.api import schemas
from serve.admin.api.context import InControl
from serve.control.live.sampler import LiveSampler, Viewer

HEARTBEAT = 10.0  # seconds without a sample until something is sent all the same
LONGEST = 600.0  # seconds of one stream: the key is looked at again with the next
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_HELLO = b"retry: 2000\n\n"

router = APIRouter(tags=["live"])

Numbers = list[float | None]


class _Columns(BaseModel):
    """Equally long columns, one value for each of `seconds`; null where nobody told it."""

    model_config = ConfigDict(extra="allow")


class CountedColumns(_Columns):
    """Calls, errors and stream messages per second; `codes` are the errors by their code."""

    calls: Numbers
    errors: Numbers
    messages: Numbers
    codes: dict[str, Numbers]


class RatesColumns(CountedColumns):
    """Also how long calls took, in seconds, and attempts per second that went elsewhere again."""

    p50: Numbers
    p90: Numbers
    p99: Numbers
    retries: Numbers


class GatewayColumns(RatesColumns):
    """All models. `waiting` calls are queued in Tritons; `cpu` is cores of all workers together.

    `memory` is bytes of all workers, `age` seconds since the numbers were read.
    """

    in_flight: Numbers
    waiting: Numbers
    cpu: Numbers
    memory: Numbers
    age: Numbers


class ModelColumns(RatesColumns):
    """One model; `versions` are by version and then by protocol."""

    versions: dict[str, dict[str, CountedColumns]]


class WorkColumns(_Columns):
    """Requests per second; seconds queued and computing per request; rows per execution."""

    requests: Numbers
    queue: Numbers
    compute: Numbers
    batch: Numbers
    waiting: Numbers


class GpuColumns(_Columns):
    """One GPU: utilisation from 0 to 1, memory in bytes, power in watts."""

    utilization: Numbers
    memory_used: Numbers
    memory_total: Numbers
    power: Numbers


class ReplicaColumns(WorkColumns):
    """One replica. `avoided` is the number of workers that avoid it, and `cpu` the host's CPU
    utilisation, from 0 to 1.

    `missing` versions are still to be loaded there; those that could not be loaded do not count.
    """

    state: list[str | None]
    pool: list[str | None]
    missing: Numbers
    avoided: Numbers
    in_flight: Numbers
    cpu: Numbers
    age: Numbers
    gpus: dict[str, GpuColumns]
    models: dict[str, WorkColumns]


class DemandColumns(_Columns):
    """One model's share: `demand` in fully busy replicas, and `calls` and one replica's `capacity`
    in calls per second. `waiting` is the number of waiting calls.
    """

    demand: Numbers
    calls: Numbers
    waiting: Numbers
    capacity: Numbers


class PoolColumns(_Columns):
    """How many replicas one pool should have. `demand` is in replicas that are busy all the time.

    `utilization` is that of its GPUs, from 0 to 1; `age` is the age of the hint in seconds.
    """

    desired: Numbers
    ready: Numbers
    starting: Numbers
    demand: Numbers
    utilization: Numbers
    age: Numbers
    models: dict[str, DemandColumns]


class LiveReason(BaseModel):
    """One reason: a code for programs, and a sentence."""

    code: str
    text: str


class LiveHint(BaseModel):
    """A current hint. `about` is a pool (`scaling`) or MODEL@VERSION (`batching`).

    `confidence` is `low` if the hint only keeps the current number. `fix` is a command that could
    help, or empty.
    """

    kind: Literal["scaling", "batching"]
    about: str
    what: str
    confidence: str
    reasons: list[LiveReason]
    fix: str


class LiveView(_Columns):
    """The last ten minutes, or less if the endpoint was not in use.

    `seconds` are Unix times, and `period` is the length of the interval that each rate averages.
    The empty model name stands for calls to unknown models. `pools` has the fifty pools with the
    most desired replicas. `hints` are the current ones.
    """

    seconds: list[float]
    period: Numbers
    gateway: GatewayColumns
    models: dict[str, ModelColumns]
    replicas: dict[str, ReplicaColumns]
    pools: dict[str, PoolColumns]
    hints: list[LiveHint]


@router.get("/api/live", summary="Show the last ten minutes", response_model=LiveView)
async def show_live(control: InControl) -> Response:
    """Returns rates, latencies, queues and GPU readings as columns with one value per second.

    The control plane collects them while this endpoint is in use and for a minute after, so the
    first response may be empty.
    """
    return Response(await control.live.history(), media_type="application/json", headers=_HEADERS)


@router.get(
    "/api/live/events",
    summary="Stream live samples",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events. Each one is a sample: the tree of `GET /api/live` "
            "with a number in place of each column. With `history`, that response is the first "
            "event, named `history`. Slow clients lose samples. The stream ends after ten "
            "minutes; reconnect then.",
            "content": {"text/event-stream": {}},
        },
        503: {"model": schemas.ErrorBody, "description": "There are already 200 streams."},
    },
)
async def watch_live(
    control: InControl,
    history: Annotated[bool, Query(description="Start with the last ten minutes.")] = False,
) -> Response:
    """Sends one sample per second until the client disconnects or the server stops."""
    return SampleStream(control.live, history=history)


class SampleStream(StreamingResponse):
    """A stream of samples. The viewer is there exactly as long as the answer is being sent."""

    def __init__(self, live: LiveSampler, *, history: bool) -> None:
        self._live = live
        self._history = history
        super().__init__(_nothing(), headers=_HEADERS, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is no more, or nobody listens."""
        with self._live.watching() as viewer:
            past = await self._live.history() if self._history else b""
            self.body_iterator = events(viewer, past)
            await super().__call__(scope, receive, send)


async def events(
    viewer: Viewer, past: bytes = b"", *, heartbeat: float = HEARTBEAT, longest: float = LONGEST
) -> AsyncIterator[bytes]:
    """What one viewer is sent, in the format of server-sent events (WHATWG HTML, section 9.2)."""
    yield _HELLO + (b"event: history\ndata: %b\n\n" % past if past else b"")
    until = asyncio.get_running_loop().time() + longest
    while (sample := await _within(heartbeat, viewer)) is not None:
        yield b"data: %b\n\n" % sample if sample else b": nothing yet\n\n"
        if asyncio.get_running_loop().time() > until:
            return


async def _within(seconds: float, viewer: Viewer) -> bytes | None:
    """The next sample, empty when there is none in time; None at the end."""
    try:
        async with asyncio.timeout(seconds):
            return await viewer.next()
    except TimeoutError:
        return b""


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
