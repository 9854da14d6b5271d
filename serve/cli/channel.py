"""Requests to the admin API that outlive a restart of it.

| what comes back                                   | what follows                               |
|---------------------------------------------------|--------------------------------------------|
| no connection, a lost one, no answer in time      | again, after a pause that grows            |
| 408, 429, 5xx except 507                          | again                                      |
| any other answer                                  | it is the answer                           |
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from serve.cli.client import error_of, no_answer, no_control
from serve.cli.talk import CommandTalk
from serve.core.errors import DeadlineExceeded, NoControl, OutcomeUnknown, ServegateError
from serve.core.texts import all_printable

if TYPE_CHECKING:
    import httpx2
    import stamina

_LATER = frozenset({408, 429})
_REFUSED = frozenset({429, 503})  # nothing was done
_LONG = 300.0  # seconds: the last piece of a blob is answered when the whole blob is stored


@dataclass(frozen=True, slots=True)
class Patience:
    """How pauses grow between two tries, and when it is enough; seconds."""

    first: float = 0.2
    longest: float = 5.0
    whole: float = 90.0

    def tries(self) -> "stamina._core._RetryContextIterator":
        """The tries of one thing, for `async for`: what raises `Away` is tried again."""
        import stamina

        return stamina.retry_context(
            on=Away,
            attempts=None,
            timeout=self.whole,
            wait_initial=self.first,
            wait_max=self.longest,
            wait_jitter=self.first,
        )


class Away(Exception):
    """The gateway is not there now; `error` is what to tell in the end.

    `was_sent`: the request may have been executed all the same.
    """

    def __init__(self, error: ServegateError, *, was_sent: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_sent = was_sent


class Channel:
    """Requests over one client, each repeated while the gateway is away.

    A gateway that has never answered is not waited for: the address may be wrong.
    """

    def __init__(
        self, client: "httpx2.AsyncClient", talk: CommandTalk, *, patience: Patience | None = None
    ) -> None:
        import stamina

        stamina.instrumentation.set_on_retry_hooks(())  # the talk tells of retries
        self._client = client
        self._talk = talk
        self._is_met = False
        self.patience = patience or Patience()

    def __repr__(self) -> str:
        return f"<Channel {self.url}>"

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return str(self._client.base_url).rstrip("/")

    async def ask(self, method: str, path: str, body: Any = None, *, repeat: bool = True) -> Any:
        """The JSON that comes back; every answer that is an error is raised.

        Without `repeat`, a request that may have been executed is not made twice: `OutcomeUnknown`.
        """
        try:
            async for attempt in self.patience.tries():
                with attempt:
                    answer = await self._try(method, path, body, repeat)
        except Away as away:
            raise away.error from away
        if not answer.is_success:
            raise error_of(answer)
        try:
            return all_printable(answer.json()) if answer.content else None
        except ValueError as error:
            raise self.stranger("its response is not JSON") from error

    async def _try(self, method: str, path: str, body: Any, repeat: bool) -> "httpx2.Response":
        try:
            return await self.once(method, path, json=body)
        except Away as away:
            if away.was_sent and not repeat:
                raise OutcomeUnknown(
                    "the request may or may not have been executed", why=str(away.error)
                ) from away
            self._talk.tell("retry", why=str(away.error))
            raise

    async def once(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "httpx2.Response":
        """One try: an answer, whatever it says, or `Away`."""
        with self._mapped():
            answer = await self._client.request(
                method, path, json=json, content=content, headers=headers, timeout=_timeout()
            )
        self._is_met = True
        _require_present(answer)
        return answer

    async def download(self, path: str, file: BinaryIO) -> str:
        """Write what is behind a path into a file; its SHA-256. One try, or `Away`."""
        hashed = hashlib.sha256()
        with self._mapped():
            async with self._client.stream("GET", path, timeout=_timeout()) as answer:
                self._is_met = True
                if not answer.is_success:
                    await answer.aread()
                    _require_present(answer)
                    raise error_of(answer)
                async for data in answer.aiter_bytes():
                    hashed.update(data)
                    await asyncio.to_thread(file.write, data)
                    self._talk.advance(len(data))
        return hashed.hexdigest()

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        """The client's errors as ours."""
        import httpx2

        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            gone = no_answer(self.url, error)
            raise (Away(gone, was_sent=False) if self._is_met else gone) from error
        except httpx2.TimeoutException as error:
            late = DeadlineExceeded("the control plane did not respond in time", why=str(error))
            raise Away(late, was_sent=True) from error
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            raise Away(no_answer(self.url, error), was_sent=True) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise no_answer(self.url, error) from error

    def stranger(self, why: str) -> NoControl:
        """The error for answers that no control plane gives."""
        return no_control(self.url, why)


def _require_present(answer: "httpx2.Response") -> None:
    """`Away` for an answer that says: not now."""
    status = answer.status_code
    if status in _LATER or (status >= 500 and status != 507):
        raise Away(error_of(answer), was_sent=status not in _REFUSED)


def _timeout() -> "httpx2.Timeout":
    import httpx2

    return httpx2.Timeout(_LONG, connect=5.0, write=60.0)
