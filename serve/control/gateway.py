"""The data plane as the control plane calls it for people: the gateway's own ports, as any client.

So what people try takes the way that every call takes: keys, splits, labels, retries and all.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
import grpc.aio

from serve.control.gateways import Gateways, Resolve, addresses, at_address
from serve.core.calls import Verb
from serve.core.errors import (
    BadRequest,
    DeadlineExceeded,
    NotFound,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.tensors import codec
from serve.tensors.codec import InferReply
from serve.tensors.datatypes import Array
from serve.tensors.metadata import Metadata, read_metadata
from serve.wire import data_answers, kserve_grpc
from serve.wire.data_answers import model_path

if TYPE_CHECKING:
    import aiohttp

HTTP, GRPC, STREAM = "http", "grpc", "stream"
_CONNECT = 5.0  # seconds
_ASKED = 10.0  # seconds for metadata, statistics and metrics
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where the gateway listens: two URLs, and HOST:PORT or `https://HOST:PORT` for gRPC."""

    http_url: str
    grpc_target: str
    metrics_url: str


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and the decision behind it.

    `seconds` is the whole round trip; `datatypes` are those of the outputs.
    """

    outputs: Mapping[str, Array]
    version: str
    by: str
    generation: int | None
    seconds: float
    datatypes: Mapping[str, str] = field(default_factory=lambda: _NONE)


class GatewayClient:
    """Calls one gateway; one HTTP session and one gRPC channel, opened when they are needed.

    `key` gives the API key that is shown, empty for none. `trust` says by whom the gateway's
    certificate is signed, where it has one.
    """

    def __init__(
        self,
        place: GatewayAddress,
        *,
        key: Callable[[], str],
        trust: ssl.SSLContext | None,
        resolve: Resolve = addresses,
    ) -> None:
        self._place = place
        self._key = key
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._channel: grpc.aio.Channel | None = None
        self._gateways = Gateways.of(place.metrics_url, self._ask_metrics, resolve)

    def __repr__(self) -> str:
        return f"<GatewayClient {self._place.http_url} {self._place.grpc_target}>"

    @property
    def place(self) -> GatewayAddress:
        """Where it listens."""
        return self._place

    @property
    def shows_key(self) -> bool:
        """Whether calls need a key, so that one is shown."""
        return bool(self._key())

    async def infer(
        self,
        model: str,
        selector: str,
        inputs: Mapping[str, Array],
        *,
        datatypes: Mapping[str, str] = _NONE,
        via: str = HTTP,
        timeout: float = 60.0,  # noqa: ASYNC109 - it goes to the clients
    ) -> Answered:
        """One call; `selector` is empty, a number or a label, `via` is `http`, `grpc` or `stream`.

        A `stream` is one over gRPC, whose responses are joined.

        Raises what the gateway answers instead, in its own words; `Unavailable` when it is not
        reached, `OutcomeUnknown` when it broke off, `DeadlineExceeded` after `timeout` seconds.
        """
        asked = (model, selector, inputs, datatypes, timeout)
        if via == HTTP:
            reply, decision, seconds = await self._infer_http(*asked)
        else:
            is_stream = via == STREAM
            reply, decision, seconds = await self._infer_grpc(*asked, is_stream=is_stream)
        decided = data_answers.read_decision(decision)
        return Answered(
            outputs=reply.outputs,
            version=decided.version or reply.version,
            by=decided.by,
            generation=decided.generation,
            seconds=seconds,
            datatypes=reply.datatypes,
        )

    async def metadata(self, model: str, selector: str) -> Metadata:
        """What a model takes and gives; raises as `infer` does."""
        answer = await self._get(self._place.http_url + model_path(model, selector))
        return read_metadata(_json(answer), model)

    async def statistics(self, model: str, version: int) -> Mapping[str, Any] | None:
        """What the replicas together have counted of a version; None when nobody holds it."""
        url = f"{self._place.http_url}{model_path(model, str(version))}/stats"
        try:
            rows = _json(await self._get(url))["model_stats"]
            found: Mapping[str, Any] = next(row for row in rows if row["version"] == str(version))
        except (NotFound, BadRequest, KeyError, TypeError, StopIteration):
            return None
        return found

    async def metrics(self) -> str:
        """The Prometheus text of the metrics port, of all gateways together (`gateways.py`)."""
        many = self._gateways
        return await (many.text(_ASKED) if many else self._ask_metrics("", _ASKED))

    async def close(self) -> None:
        """Close the connections; a later call opens them again."""
        if self._gateways is not None:
            self._gateways.close()
        session, self._session = self._session, None
        channel, self._channel = self._channel, None
        if session is not None:
            await session.close()
        if channel is not None:
            await channel.close()

    # --- over HTTP --------------------------------------------------------------------------------

    async def _infer_http(
        self,
        model: str,
        selector: str,
        inputs: Mapping[str, Array],
        datatypes: Mapping[str, str],
        within: float,
    ) -> tuple[InferReply, str, float]:
        request = await asyncio.to_thread(codec.http_request, inputs, datatypes)
        url = f"{self._place.http_url}{model_path(model, selector)}/infer"
        begun = time.perf_counter()
        answer = await self._send("POST", url, within, data=request.body, headers=request.headers)
        seconds = time.perf_counter() - begun
        length = answer.headers.get(codec.HEAD_LENGTH_HEADER, "")
        reply = await asyncio.to_thread(
            codec.read_http_reply, answer.body, int(length) if length.isdigit() else None
        )
        return reply, answer.headers.get(data_answers.DECISION, ""), seconds

    async def _ask_metrics(self, address: str, within: float) -> str:
        """Of the gateway at one address of the name; an empty one is where the name leads."""
        url = urlsplit(self._place.metrics_url)
        host = {"Host": url.netloc}
        return await self._get(at_address(url, address), within, headers=host, named=url.hostname)

    async def _get(self, url: str, within: float = _ASKED, **more: Any) -> str:
        answer = await self._send("GET", url, within, **more)
        return answer.body.decode("utf-8", "replace")

    async def _send(
        self,
        method: str,
        url: str,
        within: float,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] = _NONE,
        named: str | None = None,
    ) -> "_Answer":
        import aiohttp  # only needed once somebody asks

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._trust or True),
                headers={"Accept-Encoding": "identity"},  # compressed tensors win little
                auto_decompress=False,
            )
        shown = {**headers, **dict(data_answers.shown(self._key()))}
        patience = aiohttp.ClientTimeout(total=within, sock_connect=_CONNECT)
        try:
            async with self._session.request(
                *(method, url),
                data=data,
                headers=shown,
                timeout=patience,
                allow_redirects=False,
                server_hostname=named,
            ) as answer:
                body = await answer.read()
        except aiohttp.ConnectionTimeoutError as error:
            raise _not_reached(url, "the connection timed out") from error
        except TimeoutError as error:
            raise DeadlineExceeded from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise _not_reached(url, str(error)) from error
        except aiohttp.ClientError as error:
            raise OutcomeUnknown(
                f"the gateway at {url} closed the connection", why=repr(error)
            ) from error
        if answer.status == 200:
            return _Answer(body, answer.headers)
        text = body.decode("utf-8", "replace")
        code = answer.headers.get(data_answers.ERROR_CODE, "")
        raise data_answers.http_error(answer.status, text, code)

    # --- over gRPC --------------------------------------------------------------------------------

    async def _infer_grpc(
        self,
        model: str,
        selector: str,
        inputs: Mapping[str, Array],
        datatypes: Mapping[str, str],
        within: float,
        *,
        is_stream: bool,
    ) -> tuple[InferReply, str, float]:
        message = await asyncio.to_thread(
            codec.grpc_request, model, inputs, version=selector, datatypes=datatypes
        )
        method = kserve_grpc.method_of(Verb.STREAM if is_stream else Verb.INFER)
        options: dict[str, Any] = {"timeout": within, "metadata": data_answers.shown(self._key())}
        channel = self._connected()
        begun = time.perf_counter()
        try:
            if is_stream:
                call = channel.stream_stream(method)(iter([message]), **options)
                bodies = [body async for body in call]
            else:
                call = channel.unary_unary(method)(message, **options)
                bodies = [await call]
            told = await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            raise data_answers.grpc_error(error) from error
        seconds = time.perf_counter() - begun
        if is_stream:
            reply = await asyncio.to_thread(codec.read_grpc_stream, bodies)
        else:
            reply = await asyncio.to_thread(codec.read_grpc_reply, bodies[0])
        return reply, data_answers.metadata_value(told, data_answers.DECISION), seconds

    def _connected(self) -> Any:
        if self._channel is None:
            target = self._place.grpc_target.rpartition("://")[2].rstrip("/")
            if self._place.grpc_target.startswith("https://"):
                credentials = grpc.ssl_channel_credentials(_roots(self._trust))
                self._channel = grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
            else:
                self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        return self._channel


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    headers: Mapping[str, str]


def _roots(trust: ssl.SSLContext | None) -> bytes | None:
    """The certificates that a context trusts, in PEM form; gRPC's own ones for None."""
    if trust is None:
        return None
    pages = (ssl.DER_cert_to_PEM_cert(one) for one in trust.get_ca_certs(binary_form=True))
    return "".join(pages).encode() or None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServegateError("the gateway's response is not JSON", why=text[:200]) from error


def _not_reached(url: str, why: str) -> Unavailable:
    return Unavailable(f"the gateway at {url} does not answer", why=why, try_this="servegate up")
