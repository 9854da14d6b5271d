"""The admin API's client: JSON in, JSON out, and errors as the same tree that the server raised."""

import getpass
from typing import Any
from urllib.parse import quote

from serve.core.errors import (
    Conflict,
    DeadlineExceeded,
    Invalid,
    NoControl,
    NotFound,
    ServegateError,
    Unavailable,
)

DEFAULT_URL = "http://127.0.0.1:8080"
_CLASSES: dict[int, type[ServegateError]] = {
    400: Invalid,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    422: Invalid,
    503: Unavailable,
    504: DeadlineExceeded,
}


class AdminClient:
    """Talks to one control plane. `reason` is written beside every change."""

    def __init__(self, url: str, *, reason: str = "", timeout: float = 30.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._headers = {  # headers are ASCII: what is more is percent-encoded
            "servegate-author": quote(_author(), safe=" "),
            "servegate-reason": quote(reason, safe=" ", errors="surrogateescape"),
        }

    def get(self, path: str) -> Any:
        """The JSON behind a path."""
        return self._call("GET", path)

    def put(self, path: str, body: Any) -> Any:
        """Replace what is behind a path."""
        return self._call("PUT", path, body)

    def patch(self, path: str, body: Any) -> Any:
        """Change parts of what is behind a path."""
        return self._call("PATCH", path, body)

    def delete(self, path: str) -> Any:
        """Remove what is behind a path."""
        return self._call("DELETE", path)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        import httpx2

        try:
            answer = httpx2.request(
                method,
                self._url + path,
                json=body,
                headers=self._headers,
                timeout=self._timeout,
                trust_env=False,
            )
        except httpx2.TimeoutException as error:
            raise DeadlineExceeded from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise NoControl(
                f"the control plane at {self._url} does not answer",
                why=str(error),
                try_this="servegate up, or --admin-url URL",
            ) from error
        if not answer.is_success:
            raise _error(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise NoControl(
                f"what answers at {self._url} is no control plane",
                why="its answer is not JSON",
                try_this="--admin-url URL",
            ) from error


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="", errors="surrogateescape")


def _error(answer: Any) -> ServegateError:
    kind = _CLASSES.get(answer.status_code, ServegateError)
    try:
        body = answer.json()
        error = kind(body["what"], why=body["why"], try_this=body["try_this"])
        error.code = str(body["code"])
    except (ValueError, KeyError, TypeError):
        return kind(f"the control plane answered {answer.status_code}", why=answer.text[:200])
    return error


def _author() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
