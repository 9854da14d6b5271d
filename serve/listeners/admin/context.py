"""What the routers share: the parts of the control plane, who asks, and who may."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Header, Request

from serve.control.fleet import Fleet
from serve.control.models import By, Models
from serve.control.snapshots import Publisher
from serve.core.errors import NotFound
from serve.core.replicas import Replica
from serve.triton.metrics import Readings


@dataclass(frozen=True, slots=True)
class Control:
    """What the routers work on: the parts of one control plane."""

    models: Models
    fleet: Fleet
    publisher: Publisher
    readings: Callable[[Replica], Awaitable[Readings | None]]
    metrics: Callable[[], bytes]
    clock: Callable[[], float]
    secret: str


def control_of(request: Request) -> Control:
    """The control plane behind this application."""
    control: Control = request.app.state.control
    return control


def by(
    servegate_author: Annotated[str, Header(max_length=200)] = "",
    servegate_reason: Annotated[str, Header(max_length=1000)] = "",
    if_match: Annotated[str, Header(max_length=100)] = "",
) -> By:
    """Who changes something and why (percent-encoded); `If-Match` is the state they had read."""
    return By(unquote(servegate_author) or "anonymous", unquote(servegate_reason), if_match)


def worker_only(request: Request, authorization: Annotated[str, Header()] = "") -> None:
    """Only data-plane workers, who know the shared secret, may pass."""
    wanted = f"Bearer {control_of(request).secret}"
    if not hmac.compare_digest(authorization.encode(), wanted.encode()):
        raise NotFound("Not Found")


InControl = Annotated[Control, Depends(control_of)]
ByWhom = Annotated[By, Depends(by)]
