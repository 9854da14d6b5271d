"""The gRPC data plane between a client and Tritons, on wires of memory.

The client sends what it is told. At the end everything has to be back at zero.
"""

import asyncio
from typing import Any

from builders import DataPlane
from fuzz.grpc_peers import ScriptedTriton, Triton
from fuzz.http2_peers import PREFACE, Grants, Watch
from fuzz.http_scene import LIMITS, fleet
from fuzz.wires import Complaints, Loop, Wire

from serve.listeners.grpc.kserve import KServeGrpc
from serve.triton.grpc_pool import GrpcPool

_PORTS = (8001, 8101)


class GrpcScene:
    """One client, one input, and what is behind the gateway."""

    _loop: Loop | None = None

    def __init__(
        self,
        *,
        is_narrow: bool,
        cancel: str,
        script: list[bytes] | None = None,
        begins_well: bool = True,
    ) -> None:
        cls = type(self)
        if cls._loop is None:
            cls._loop = Loop()
            Complaints(cls._loop)
        loop = self.loop = cls._loop
        asyncio.set_event_loop(loop)
        loop.failures.clear()
        self.is_narrow = loop.is_narrow = is_narrow
        self.executed = 0
        self.streamed: list[bytes] = []
        self.tritons: list[Any] = []
        self.plane = DataPlane(fleet(), draw=0.7)
        clock = self.plane.clock
        self.pool = GrpcPool(limits=LIMITS, connect_timeout=1.0, clock=clock)
        self.listener = KServeGrpc(
            self.plane.gateway,
            self.pool,
            limits=LIMITS,
            cancel=cancel,
            clock=clock,
            is_draining=lambda: False,
        )

        def accept(wire: Wire) -> None:
            self.tritons.append(
                Triton(wire, self)
                if script is None
                else ScriptedTriton(wire, script, begins_well=begins_well)
            )

        loop.listeners = dict.fromkeys(_PORTS, accept)
        self.watch = Watch()
        self._grants = Grants(self.watch, PREFACE)
        self.client = Wire(loop, self.listener.connection())

    def say(self, piece: bytes) -> bool:
        """Bytes of the client; False when nobody reads them."""
        if not self.client.may_say:
            self.loop.finish(self.others)
        if not self.client.may_say:
            return False
        self._grants.read(piece)
        self.client.say(piece)
        self.others()
        self.check_held()
        return True

    def others(self) -> bool:
        """Let the client read, and the Tritons act; whether anything happened."""
        data = self.client.take()
        for _ in self.watch.read(data):
            pass
        happened = [one.play() for one in self.tritons]
        return bool(data) or any(happened)

    def check_held(self) -> None:
        """No more is held than the limits allow; a piece may be on its way."""
        assert self.listener.held <= LIMITS.in_flight + LIMITS.body + (1 << 17), self.listener.held

    def leave_after_answers(self) -> None:
        self.loop.finish(self.others)
        self.plane.clock.now += LIMITS.call + 1
        self.loop.turn(self.listener.sweep, self.pool.sweep)
        self.leave()

    def leave(self) -> None:
        """The client goes; calls without a client run out of time, then all is at zero."""
        self.loop.finish(self.others)
        self.check_held()
        self.client.end()
        self.loop.finish(self.others)
        self.loop.turn(self.listener.sweep, self.pool.sweep)
        assert self.listener.calls == 0 and self.listener.connections == 0, self.listener
        self.plane.clock.now += 1000
        for _ in range(2):
            self.loop.turn(self.listener.sweep, self.pool.sweep)
            self.loop.finish(self.others)
        self.plane.clock.now += 1000
        self.loop.turn(self.listener.sweep, self.pool.sweep)
        self.loop.finish(self.others)
        self.plane.gateway.sweep()
        assert self.plane.loads.total == 0 and not self.plane.loads.replicas, self.plane.loads
        assert self.listener.held == 0, self.listener.held
        assert self.pool.streams == 0, self.pool
        assert self.pool.connections == 0, self.pool
        self.pool.close()
        self.loop.finish(self.others)
        assert not asyncio.all_tasks(self.loop)
