"""The admin API's client: JSON in, JSON out, and errors as the same tree that the server raised."""

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from serve.cli.credentials import VARIABLE, authorization
from serve.cli.output import say
from serve.cli.server import AdminServer, admin_server, using
from serve.core.errors import (
    Conflict,
    DeadlineExceeded,
    NoControl,
    ServegateError,
    Unauthenticated,
)
from serve.core.texts import all_printable
from serve.trust import trust
from serve.wire import admin_answers

if TYPE_CHECKING:
    import ssl

    import httpx2


class AdminClient:
    """Talks to one control plane. `reason` is written beside every change.

    `authorization` is what is shown to be let in, empty for nothing; see `connect`. Before the
    first request it prints a server that the command was not given, and looks whether that is the
    gateway of this folder: nothing is changed at another one.
    """

    def __init__(
        self,
        server: AdminServer | str,
        *,
        reason: str = "",
        timeout: float = 30.0,
        authorization: str = "",
    ) -> None:
        self._server = server if isinstance(server, AdminServer) else AdminServer(server)
        self._url = self._server.url.rstrip("/")
        self._is_met = False
        self._stranger: Conflict | None = None
        self._timeout = timeout
        self._headers = {  # headers are ASCII: what is more is percent-encoded
            "servegate-author": quote(author(), safe=" "),
            "servegate-reason": quote(reason, safe=" ", errors="surrogateescape"),
        }
        if authorization:
            self._headers["authorization"] = authorization

    def __repr__(self) -> str:
        return f"<AdminClient {self._url}>"

    @property
    def url(self) -> str:
        """Where the control plane is."""
        return self._url

    def get(self, path: str) -> Any:
        """The JSON behind a path."""
        return self._call("GET", path)

    @property
    def server(self) -> AdminServer:
        """The same, and which setting named it."""
        return self._server

    def live(self) -> None:
        """Return when a control plane answers; `NoControl` when nobody does."""
        self._send("GET", "/livez", None)

    def require_own(self) -> None:
        """Raise what a change would raise where another gateway than this folder's answers."""
        self._meet(changes=True)

    def stranger(self) -> Conflict | None:
        """Why what answers is not the gateway of this folder; None when it is, or may be."""
        expected = self._server.gateway
        if not expected:
            return None
        try:
            found = self._send("GET", "/livez", None, headers={}).json()["gateway"]
        except (ValueError, KeyError, TypeError):  # an older gateway, or another program
            found = "unknown"
        if found in ("", expected):  # a standby does not know it, and refuses every change
            return None
        error = Conflict(
            f"the gateway at {self._url} does not belong to this folder",
            why=f"its id is {found}, but {self._server.folder} belongs to {expected}",
            try_this=f"start this folder's gateway, or pass --admin-url {self._url} to change it",
        )
        error.code = "another_gateway"
        return error

    def post(self, path: str, body: Any) -> Any:
        """Make something new below a path."""
        return self._call("POST", path, body)

    def send_bytes(self, path: str, data: bytes) -> Any:
        """Send a file's content to a path."""
        return self._call("POST", path, content=data)

    def put(self, path: str, body: Any, *, if_match: str = "") -> Any:
        """Replace what is behind a path, if that has this ETag or none is named."""
        return self._call("PUT", path, body, if_match=if_match)

    def patch(self, path: str, body: Any) -> Any:
        """Change parts of what is behind a path."""
        return self._call("PATCH", path, body)

    def delete(self, path: str) -> Any:
        """Remove what is behind a path."""
        return self._call("DELETE", path)

    def asynchronous(self) -> "httpx2.AsyncClient":
        """The same connection, for many requests at a time; paths are relative to the URL."""
        import httpx2

        self._meet(changes=True)
        return httpx2.AsyncClient(
            base_url=self._url,
            headers=self._headers,
            timeout=self._timeout,
            trust_env=False,
            verify=self._trust(),
        )

    def _meet(self, *, changes: bool) -> None:
        """Before the first request: print the server, and look whose it is."""
        if not self._is_met:
            if self._server.source:
                say(using(self._url, self._server.source))
            self._stranger = self.stranger()
            self._is_met = True
            if self._stranger is not None and not changes:
                say(f"warning: {self._stranger.what}: {self._stranger.why}")
        if self._stranger is not None and changes:
            raise self._stranger

    def _trust(self) -> "ssl.SSLContext | bool":
        """Whom to believe. Without TLS nobody is asked: the system's list takes a while to read."""
        return False if self._url.lower().startswith("http:") else trust()

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        content: bytes | None = None,
        if_match: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        import httpx2

        try:
            return httpx2.request(
                method,
                self._url + path,
                json=body,
                content=content,
                headers=(self._headers if headers is None else dict(headers))
                | ({"if-match": if_match} if if_match else {}),
                timeout=self._timeout,
                trust_env=False,
                verify=self._trust(),
            )
        except httpx2.TimeoutException as error:
            raise DeadlineExceeded from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise no_answer(self._url, error) from error

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        if_match: str = "",
    ) -> Any:
        self._meet(changes=method != "GET")
        answer = self._send(method, path, body, content, if_match)
        if not answer.is_success:
            raise error_of(answer)
        try:
            return all_printable(answer.json())
        except ValueError as error:
            raise no_control(self._url, "its response is not JSON") from error


def connect(
    where: AdminServer | str | None,
    key_file: Path | None = None,
    *,
    reason: str = "",
    timeout: float = 30.0,
) -> AdminClient:
    """A client that shows the key of `key_file` or the environment, or else the local secret.

    `where` is the command's `--admin-url`, or what `admin_server` made of it.
    """
    server = where if isinstance(where, AdminServer) else admin_server(where)
    shown = authorization(server.url, key_file)
    return AdminClient(server, reason=reason, timeout=timeout, authorization=shown)


def no_answer(url: str, error: Exception) -> NoControl:
    """Nobody listens there, or the connection broke."""
    return NoControl(
        f"the control plane at {url} does not respond",
        why=str(error),
        try_this="start it with servegate up, or pass --admin-url URL",
    )


def no_control(url: str, why: str) -> NoControl:
    """Somebody answers there, but not as a control plane does."""
    return NoControl(
        f"the server at {url} is not a control plane", why=why, try_this="pass --admin-url URL"
    )


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="", errors="surrogateescape")


def error_of(answer: Any) -> ServegateError:
    """The error that an answer tells, with what people at a shell can do about it."""
    error = admin_answers.error_of(answer.status_code, answer.text)
    if isinstance(error, Unauthenticated):
        error.try_this = (
            f"set {VARIABLE}, pass --key-file FILE, or run the command in the gateway's folder"
        )
    return error


def author() -> str:
    """Who runs the command, as this machine knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
