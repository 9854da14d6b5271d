"""A request that is answered with an error of ours."""

import dataclasses
from dataclasses import dataclass

from serve.core.calls import Verb
from serve.core.errors import ServegateError
from serve.wire.http_head import written
from serve.wire.request_ids import TOLD
from serve.wire.status import http_error


@dataclass(frozen=True, slots=True)
class Refused:
    """Why it is refused, and what its caller is told of it beside that."""

    error: ServegateError
    request_id: bytes
    verb: Verb = Verb.INFER

    def written(self, *, keeps_alive: bool) -> bytes:
        """The whole answer."""
        reply = http_error(self.error, self.verb)
        told = dataclasses.replace(reply, headers=(*reply.headers, (TOLD, self.request_id)))
        return written(told, keeps_alive=keeps_alive)
