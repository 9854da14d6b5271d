"""Who may manage, and what becomes of a management call on its way to the control plane."""

import asyncio
import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from builders import Clock, DataPlane, replica, snapshot, target, view
from grpc_wire import BOUND, LIMITS, Triton

from serve.core.access import ApiKey, Role
from serve.core.calls import Headers, Reply
from serve.core.errors import (
    Forbidden,
    LoadFailed,
    NotServed,
    ServegateError,
    Unauthenticated,
    UnknownModel,
)
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.services import ServiceRequest, Unary
from serve.listeners.management import Management
from serve.triton.grpc_pool import GrpcPool
from serve.wire.kserve_grpc import SERVICE
from serve.wire.management import ManagementOrder

LOAD = b"/v2/repository/models/m/load"
STATUS = b"/v2/systemsharedmemory/status"


class Manager:
    """Stands for the way to the control plane."""

    def __init__(self) -> None:
        self.wishes: list[tuple[ManagementOrder, str]] = []
        self.error: ServegateError | None = None

    async def manage(
        self, wish: ManagementOrder, *, author: str, within: float
    ) -> Mapping[str, Any]:
        self.wishes.append((wish, author))
        if self.error:
            raise self.error
        return {"log_info": False} if wish.act == "logging" else {}


class Pool:
    """Stands for the connections to Tritons."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def fetch(self, replica: Replica, head: bytes, deadline: float) -> Reply:
        self.asked.append(head)
        return Reply(200, b"[]")


class Scene:
    def __init__(
        self,
        *keys: ApiKey,
        replicas: Mapping[str, Replica] | None = None,
        grpc_pool: GrpcPool | None = None,
    ) -> None:
        known = snapshot(view(target()))
        held = MappingProxyType(dict(replicas)) if replicas is not None else known.replicas
        self.plane = DataPlane(
            dataclasses.replace(
                known,
                replicas=held,
                keys=MappingProxyType({key.id: key for key in keys}),
                guarded=bool(keys),
            )
            if keys or replicas is not None
            else known
        )
        self.manager, self.pool = Manager(), Pool()
        self.management = Management(
            self.plane.gateway,
            self.pool,  # type: ignore[arg-type]
            grpc_pool or self.plane,  # type: ignore[arg-type]
            self.manager,
        )

    def http(
        self,
        path: bytes = LOAD,
        token: str = "",
        method: str = "POST",
        headers: Headers = (),
        body: bytes = b"",
    ) -> Reply:
        credential = f"Bearer {token}".encode() if token else b""
        return asyncio.run(
            self.management.over_http(
                method, path, body, headers=headers, credential=credential, deadline=math.inf
            )
        )

    def grpc(self, method: str, token: str = "", headers: Headers = ()) -> Reply:
        service = self.management.services()[SERVICE + method]
        assert isinstance(service, Unary)
        credential = f"Bearer {token}".encode() if token else b""
        asked = ServiceRequest(
            SERVICE + method, b"\x12\x01m", headers, credential, math.inf, "1", None
        )  # type: ignore[arg-type]
        answer: Reply = asyncio.run(service.answer(asked))  # type: ignore[arg-type]
        return answer


def errors(scene: Scene) -> Counter[str]:
    """How often each error was counted, over both protocols."""
    counts: Counter[str] = Counter()
    for family in scene.plane.meters.registry.collect():
        for sample in family.samples:
            if sample.name == "servegate_errors_total":
                counts[sample.labels["error"]] += int(sample.value)
    return counts


def test_without_keys_whoever_reaches_the_port_may_manage() -> None:
    scene = Scene()
    assert scene.http() == Reply(200, b"", ((b"content-type", b"application/json"),))
    assert scene.grpc("RepositoryModelLoad") == Reply(0, b"")
    assert scene.manager.wishes == [(ManagementOrder("load", "m"), "a data port")] * 2


def test_only_an_admin_key_may_manage() -> None:
    predictor, predicts = ApiKey.create(Role.PREDICTOR)
    admin, manages = ApiKey.create(Role.ADMIN)
    scene = Scene(predictor, admin)
    for act in (scene.http, lambda token="": scene.grpc("RepositoryModelUnload", token)):
        with pytest.raises(Unauthenticated):
            act()
        with pytest.raises(Forbidden):
            act(token=predicts)
    assert scene.manager.wishes == []
    assert scene.http(token=manages).status == 200
    assert scene.manager.wishes == [(ManagementOrder("load", "m"), f"key:{admin.id}")]
    assert errors(scene) == {"unauthenticated": 2, "forbidden": 2}


FOREIGN: Headers = ((b"host", b"localhost:8000"), (b"origin", b"http://evil"))


def test_a_page_of_another_site_changes_nothing() -> None:
    scene = Scene()
    paths = (
        LOAD,
        b"/v2/repository/models/m/unload",
        b"/v2/logging",
        b"/v2/trace/setting",
        b"/v2/systemsharedmemory/region/r/register",
        b"/v2/cudasharedmemory/unregister",
    )
    for path in paths:
        with pytest.raises(Forbidden, match="page of another site"):
            scene.http(path, headers=FOREIGN, body=b"{}")
    with pytest.raises(Forbidden, match="page of another site"):
        scene.grpc("RepositoryModelUnload", headers=FOREIGN)
    assert (scene.manager.wishes, scene.pool.asked) == ([], [])
    assert errors(scene) == {"forbidden": len(paths) + 1}


def test_a_page_of_another_site_may_ask_what_it_cannot_read() -> None:
    scene = Scene()
    assert scene.http(b"/v2/logging", method="GET", headers=FOREIGN).status == 200


def test_a_model_that_the_admin_key_does_not_name_does_not_exist_for_it() -> None:
    key, token = ApiKey.create(Role.ADMIN, ("other*",))
    with pytest.raises(UnknownModel):
        Scene(key).http(token=token)


def test_an_error_of_the_control_plane_is_the_answer() -> None:
    scene = Scene()
    scene.manager.error = LoadFailed("m", "no memory")
    with pytest.raises(LoadFailed):
        scene.http()
    assert errors(scene) == {"load_failed": 1}


def test_settings_are_answered_in_each_protocols_form() -> None:
    scene = Scene()
    assert scene.http(b"/v2/logging", method="GET").body == b'{"log_info":false}'
    assert scene.grpc("LogSettings").body.endswith(b"log_info\x12\x02\x08\x00")


def test_shared_memory_goes_to_the_one_local_triton_and_nowhere_else() -> None:
    scene = Scene()
    assert scene.http(STATUS, method="GET").body == b"[]"
    assert scene.pool.asked[0].startswith(b"GET /v2/systemsharedmemory/status HTTP/1.1\r\n")
    far = Replica("far", "10.0.0.1", 1, 2, 3)
    for others in ({"far": far}, {"a": replica("a"), "b": replica("b")}, {}):
        with pytest.raises(NotServed, match="a single local Triton"):
            Scene(replicas=others).http(STATUS, method="GET")


def test_shared_memory_over_grpc_passes_in_both_directions_as_it_is() -> None:
    async def act() -> tuple[Reply, list[list[bytes]]]:
        triton, pool = Triton(), GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=Clock())
        triton.says = lambda request: b"said " + request
        await triton.start()
        there = {"a": Replica("a", "127.0.0.1", 1, triton.port, 1)}
        scene = Scene(replicas=there, grpc_pool=pool)
        method = SERVICE + "SystemSharedMemoryRegister"
        service = scene.management.services()[method]
        assert isinstance(service, Unary)
        end = scene.plane.clock() + BOUND
        asked = ServiceRequest(method, b"\x0a\x03a/b", (), b"", end, "1", None)  # type: ignore[arg-type]
        try:
            reply = await service.answer(asked)
            return reply, [call.messages for call in triton.calls]
        finally:
            pool.close()
            triton.close()

    reply, messages = asyncio.run(act())
    assert reply == Reply(0, b"said \x0a\x03a/b")
    assert messages == [[b"\x0a\x03a/b"]]


def test_a_gateway_without_a_snapshot_manages_nothing() -> None:
    scene = Scene()
    scene.plane.live.swap(Snapshot(2))
    with pytest.raises(NotServed):
        scene.http(STATUS, method="GET")
