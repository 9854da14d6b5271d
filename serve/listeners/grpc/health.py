"""grpc.health.v1: whether the gateway serves, said as Triton says it, to anybody.

Triton answers for itself, whatever service is asked for, and has no Watch (seen with 2.51).
"""

from collections.abc import Callable

from serve.core.calls import Reply
from serve.listeners.grpc.services import Service, ServiceRequest, Unary
from serve.proxy.gateway import Gateway
from serve.wire import protobuf
from serve.wire.status import OK

CHECK = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = 1, 2  # HealthCheckResponse.ServingStatus


def health(gateway: Gateway, is_draining: Callable[[], bool]) -> dict[str, Service]:
    """The service, for `KServeGrpc(services=…)`."""

    async def check(asked: ServiceRequest) -> Reply:
        is_serving = gateway.is_ready() and not is_draining()
        return Reply(OK, protobuf.number(1, SERVING if is_serving else NOT_SERVING))

    return {CHECK: Unary(check)}
