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
from refusals import refusal

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
        held = known.replicas if replicas is None else replicas
        by_id = MappingProxyType({key.id: key for key in keys})
        self.plane = DataPlane(
            dataclasses.replace(
                known, replicas=MappingProxyType(held), keys=by_id, guarded=bool(keys)
            )
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
        return asyncio.run(
            self.management.over_http(
                *(method, path, body),
                headers=headers,
                credential=bearer(token),
                deadline=math.inf,
            )
        )

    def grpc(self, method: str, token: str = "", headers: Headers = ()) -> Reply:
        return asyncio.run(self.over_grpc(method, b"\x12\x01m", math.inf, headers, bearer(token)))

    async def over_grpc(
        self,
        method: str,
        body: bytes,
        deadline: float,
        headers: Headers = (),
        credential: bytes = b"",
    ) -> Reply:
        service = self.management.services()[SERVICE + method]
        assert isinstance(service, Unary)
        asked = ServiceRequest(
            *(SERVICE + method, body, headers, credential, deadline, "1"),
            None,  # type: ignore[arg-type]
        )
        return await service.answer(asked)


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode() if token else b""


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


def test_only_an_admin_key_may_manage_the_models_that_it_names() -> None:
    predictor, predicts = ApiKey.create(Role.PREDICTOR)
    other, elsewhere = ApiKey.create(Role.ADMIN, ("other*",))
    admin, manages = ApiKey.create(Role.ADMIN)
    scene = Scene(predictor, other, admin)
    for act in (scene.http, lambda token="": scene.grpc("RepositoryModelUnload", token)):
        refusal(Unauthenticated, act)
        refusal(Forbidden, act, token=predicts)
        refusal(UnknownModel, act, token=elsewhere)
    assert scene.manager.wishes == []
    assert scene.http(token=manages).status == 200
    assert scene.manager.wishes == [(ManagementOrder("load", "m"), f"key:{admin.id}")]
    scene.manager.error = LoadFailed("m", "no memory")
    refusal(LoadFailed, scene.http, token=manages)
    once = {"load_failed": 1}
    assert errors(scene) == once | {"unauthenticated": 2, "forbidden": 2, "unknown_model": 2}


FOREIGN: Headers = ((b"host", b"localhost:8000"), (b"origin", b"http://evil"))


def test_a_page_of_another_site_changes_nothing_and_may_ask_what_it_cannot_read() -> None:
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
    assert scene.http(b"/v2/logging", method="GET", headers=FOREIGN).status == 200


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
    async def act() -> None:
        triton, pool = Triton(), GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=Clock())
        triton.says = lambda request: b"said " + request
        await triton.start()
        there = {"a": Replica("a", "127.0.0.1", 1, triton.port, 1)}
        scene = Scene(replicas=there, grpc_pool=pool)
        asked, end = b"\x0a\x03a/b", scene.plane.clock() + BOUND
        try:
            reply = await scene.over_grpc("SystemSharedMemoryRegister", asked, end)
            assert reply == Reply(0, b"said " + asked)
            assert triton.messages == [asked]
        finally:
            pool.close()
            triton.close()

    asyncio.run(act())
