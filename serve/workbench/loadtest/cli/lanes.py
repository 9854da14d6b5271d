"""From what a load test is asked to call, to lanes with every body in them.

The gateway is asked what the model takes, as `servegate infer` asks it; the inputs are read, cut
into requests and encoded for each protocol; then each lane is called once, so that what is wrong
is told before a run counts it as errors.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve.cli.asked import ModelReference
from serve.cli.callers import HttpCaller
from serve.cli.client import connect
from serve.cli.credentials import api_key, authorization
from serve.cli.infer import RecordedModel
from serve.cli.output import say
from serve.cli.server import AdminServer, admin_server, announced, data_urls, using
from serve.trust import trust
from serve.workbench.loadtest import encoded_bodies
from serve.workbench.loadtest.cli.check import check_lanes
from serve.workbench.loadtest.cli.inputs import InputRequest, read_requests
from serve.workbench.loadtest.cli.options import endpoint, ways_of
from serve.workbench.loadtest.encoded_bodies import CallWay

if TYPE_CHECKING:
    from serve.workbench.loadtest.observer import LoadTarget
    from serve.workbench.loadtest.plan import Lane


@dataclass(frozen=True, slots=True)
class Ends:
    """Where everything is, and the file with what is shown there."""

    url: str
    grpc_url: str
    admin: AdminServer
    metrics_url: str
    key_file: Path | None = None

    @property
    def urls(self) -> dict[str, str]:
        """The addresses by the names of the options that give them."""
        return {
            "url": self.url,
            "grpc_url": self.grpc_url,
            "admin_url": self.admin.url,
            "metrics_url": self.metrics_url,
        }

    def target(self, asked: ModelReference) -> "LoadTarget":
        """The same for what asks the gateway's side about a model."""
        from serve.workbench.loadtest.observer import LoadTarget

        address, tls, prefix = endpoint(self.url)
        metrics = self.metrics_url.rstrip("/")
        if metrics and not metrics.endswith("/metrics"):
            metrics += "/metrics"
        return LoadTarget(
            http_url=f"{'https' if tls else 'http'}://{address}{prefix}",
            admin_url=self.admin.url,
            metrics_url=metrics,
            key=api_key(self.key_file),
            model=asked.model,
            admin_key=authorization(self.admin.url, self.key_file).removeprefix("Bearer "),
            trust=trust(),
        )


def ends_of(
    url: str | None,
    grpc_url: str | None,
    admin_url: str | None,
    metrics_url: str | None,
    key_file: Path | None,
) -> Ends:
    """From the options of a command; prints what it was not given."""
    (http, grpc, metrics), source = data_urls(url, grpc_url, metrics_url)
    if source:
        say(using(http, source))
    return Ends(http, grpc, announced(admin_server(admin_url)), metrics, key_file)


@dataclass(frozen=True, slots=True)
class Calls:
    """What is called, and with what. `sequence`: calls of each sequence, 0 for none.

    `address`: host:port that is called instead of the gateway, such as a Triton's, without a key.
    """

    asked: ModelReference
    ends: Ends
    protocols: tuple[str, ...] = ()
    wish: InputRequest = field(default_factory=InputRequest)
    sequence: int = 0
    timeout: float = 30.0
    checked: bool = True
    address: str = ""

    def lanes(self, note: Callable[[str], None]) -> "tuple[Lane, ...]":
        """One for each protocol; `note` takes what people should know.

        Raises what is wrong with the options, the inputs, or the first answers.
        """
        ends, asked = self.ends, self.asked
        ways = ways_of(self.protocols, ends.url, ends.grpc_url)
        if self.address:
            ways = tuple(CallWay(each.protocol, self.address, each.weight) for each in ways)
        key = api_key(ends.key_file)
        recorded = RecordedModel(connect(ends.admin, ends.key_file, timeout=5.0), asked.model)
        with HttpCaller(ends.url, key=key, timeout=self.timeout) as http:
            metadata = http.metadata(asked)
        ready = read_requests(asked.model, metadata, self.wish, recorded.preprocessing)
        shown = (("authorization", f"Bearer {key}"),) if key and not self.address else ()
        wanted = encoded_bodies.RequestedVersion(
            asked.model,
            asked.selector,
            ready.datatypes,
            output=ready.output,
            sequence=self.sequence,
            headers=shown,
        )
        lanes = encoded_bodies.lanes(ways, ready.requests, wanted)
        for text in (
            *ready.notes,
            *(check_lanes(lanes, timeout=self.timeout) if self.checked else ()),
        ):
            note(text)
        return lanes

    def but(self, **changed: Any) -> "Calls":
        """The same with other fields of its own, or of its wish."""
        wish = {name: changed.pop(name) for name in InputRequest.__slots__ if name in changed}
        return replace(self, wish=replace(self.wish, **wish), **changed)
