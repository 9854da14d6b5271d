"""What the routers share: the parts of the control plane, who asks, and who may."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from fastapi import Depends, Header, Request

from serve.admin.api.features import FeatureWeb, ReusableRows
from serve.admin.api.sessions import COOKIE, is_valid
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.batching.benches import Benches
from serve.control.batching.configurations import Configuring
from serve.control.batching.overview import Overviews
from serve.control.discovery import Discovering
from serve.control.fleet import Fleet
from serve.control.history import History
from serve.control.keys import KeyCommands
from serve.control.live.sampler import LiveSampler
from serve.control.management import ManagementCommands
from serve.control.models import By, Models
from serve.control.publication.publications import Publications
from serve.control.publication.retention import Retention
from serve.control.scaling.board import HintBoard
from serve.control.scaling.permissions import Pools
from serve.control.snapshots import Publisher
from serve.control.tries.desk import TryDesk
from serve.control.uploads.uploads import Uploads
from serve.core.access import Access, Act, ApiKey
from serve.core.commands import GRPC, HTTP, METRICS
from serve.core.errors import NotFound, NotServed
from serve.core.replicas import Replica
from serve.triton.metrics import ReplicaScrape

T = TypeVar("T")
_AUTHOR = "Author of the change, percent-encoded. Ignored if the request contains an API key."
_REASON = "Reason for the change, percent-encoded. It is recorded in the history."
_IF_MATCH = "ETag of the state that you read. If it has changed since, the request is refused."


@dataclass(frozen=True, slots=True)
class AdminContext:
    """What the routers work on: the parts of one control plane.

    `needs_key` says whether callers must show a key, told whether there is one or ever was;
    `wall` is seconds of the epoch. `publishes` says whether there is a way to bring versions to the
    Tritons, `leads` whether this process may decide anything. `identity` is the gateway's random
    id, empty until this process has led. `data_urls`: the gateway's HTTP, gRPC and metrics ports;
    `data_metrics` is the text of the last.
    `features` are those of the workbench, and `services` what their routers work on, by class.
    """

    models: Models
    fleet: Fleet
    publisher: Publisher
    management: ManagementCommands
    keys: KeyCommands
    storage: ArtifactStorage
    uploads: Uploads
    publications: Publications
    retention: Retention
    history: History
    tries: TryDesk
    benches: Benches
    configuring: Configuring
    overviews: Overviews
    live: LiveSampler
    pools: Pools
    readings: Callable[[Replica], Awaitable[ReplicaScrape | None]]
    metrics: Callable[[], bytes]
    data_metrics: Callable[[], Awaitable[str]]
    clock: Callable[[], float]
    secret: str
    needs_key: Callable[[bool], bool]
    wall: Callable[[], float]
    publishes: bool = True
    leads: Callable[[], bool] = lambda: True
    identity: Callable[[], str] = lambda: ""
    data_urls: tuple[str, str, str] = (HTTP, GRPC, METRICS)
    board: HintBoard = field(default_factory=HintBoard)
    discovering: Discovering | None = None
    services: Mapping[type, Any] = field(default_factory=dict)
    features: tuple[FeatureWeb, ...] = ()

    def service(self, kind: type[T]) -> T:
        """A service of a feature, by its class; its routers are there only with it."""
        found: T = self.services[kind]
        return found

    @property
    def rows(self) -> ReusableRows:
        """The rows of datasets; `NotServed` where no feature has datasets."""
        for feature in self.features:
            if feature.rows is not None:
                return feature.rows
        raise NotServed(
            "this gateway has no datasets",
            why="the workbench is not installed",
            try_this="install the complete servegate package",
        )


def control_of(request: Request) -> AdminContext:
    """The control plane behind this application."""
    control: AdminContext = request.app.state.control
    return control


def caller(request: Request, authorization: Annotated[str, Header()] = "") -> ApiKey | None:
    """Who asks, once keys are needed: an admin key, or None for who knows the shared secret.

    The secret is in a file that only its owner can read, so it stands for a login on this machine.
    A browser shows the session of either. `Unauthenticated` and `Forbidden` for everybody else;
    None too while no key is needed.
    """
    control = control_of(request)
    decisions = control.models.decisions
    if not control.needs_key(decisions.guarded):
        return None
    session = request.cookies.get(COOKIE, "")
    if session and not authorization:
        now = control.wall()
        ok, key = is_valid(session, decisions.keys(), secret=control.secret, now=now)
        if ok:
            return key
    return shown(control, authorization)


def shown(control: AdminContext, authorization: str) -> ApiKey | None:
    """Whose key an Authorization value shows, None for the shared secret's; as `caller` refuses."""
    if _knows_secret(control, authorization):
        return None
    access = Access(control.models.decisions.keys(), is_required=True, wall=control.wall)
    return access.check(authorization.encode("latin-1"), Act.ADMINISTER)


def by(
    key: Annotated[ApiKey | None, Depends(caller)],
    servegate_author: Annotated[str, Header(max_length=200, description=_AUTHOR)] = "",
    servegate_reason: Annotated[str, Header(max_length=1000, description=_REASON)] = "",
    if_match: Annotated[str, Header(max_length=100, description=_IF_MATCH)] = "",
) -> By:
    """Who changes something and why (percent-encoded); `If-Match` is the state they had read.

    A key that was shown is who: a name in a header is only a claim.
    """
    author = f"key:{key.id}" if key else unquote(servegate_author) or "anonymous"
    return By(author, unquote(servegate_reason), if_match)


def worker_only(request: Request, authorization: Annotated[str, Header()] = "") -> None:
    """Only data-plane workers, who know the shared secret, may pass."""
    if not _knows_secret(control_of(request), authorization):
        raise NotFound("Not Found")


def _knows_secret(control: AdminContext, authorization: str) -> bool:
    wanted = f"Bearer {control.secret}"
    return hmac.compare_digest(authorization.encode(), wanted.encode())


def publishing(request: Request) -> None:
    """Only where versions can be published may they be uploaded."""
    if not control_of(request).publishes:
        raise NotServed(
            "versions cannot be pushed to this gateway",
            why="its Tritons run elsewhere, and it has no way to send files to them",
            try_this="use --delivery-folder with a folder that they read, --delivery agents, or "
            "--delivery bucket",
        )


InControl = Annotated[AdminContext, Depends(control_of)]
ByWhom = Annotated[By, Depends(by)]
