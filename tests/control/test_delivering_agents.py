"""Delivery by agents: what they are told, when, and which of their reports are believed."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from builders import Clock
from control.delivering_scene import Shelf
from refusals import refusal

from serve.control.deliveries.agents import SILENT, AgentDelivery, Page
from serve.control.deliveries.delivery import Slot
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid


class Scene:
    """What is published, and its delivery by agents."""

    def __init__(self, folder: Path) -> None:
        self.shelf, self.clock = Shelf(folder / "shelf"), Clock()
        self.delivery = AgentDelivery(self.shelf, clock=self.clock)
        self.one, self.two = self.shelf.publish(), self.shelf.publish(number=2)

    async def deliver(self, *wanted: PublishedVersion, held: Collection[Slot] = ()) -> None:
        await self.delivery.deliver(wanted, held)

    async def page(self, have: str = "") -> Page:
        page = await self.delivery.poll(have, 0)
        assert page is not None
        return page

    async def paged(self, *wanted: PublishedVersion) -> str:
        """These are wanted; the name of the page that says so."""
        await self.deliver(*wanted)
        return (await self.page()).name


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_before_anything_is_known_an_agent_is_told_nothing(scene: Scene) -> None:
    assert await scene.delivery.poll("", 0) is None
    assert await scene.delivery.poll("0123-4567", 0) is None


async def test_an_agent_gets_the_page_once_and_again_after_a_change(scene: Scene) -> None:
    await scene.deliver(scene.one)
    first = await scene.page()
    assert [piece.slot for piece in first.pieces] == [("digits", 1)]
    assert Page.from_json(first.to_json()) == first
    assert await scene.delivery.poll(first.name, 0) is None
    await scene.deliver(scene.one)
    assert await scene.delivery.poll(first.name, 0) is None
    await scene.deliver(scene.one, scene.two)
    assert (await scene.page(first.name)).keep == {("digits", 1), ("digits", 2)}


async def test_a_waiting_agent_is_woken_by_a_change(scene: Scene) -> None:
    polling = asyncio.create_task(scene.delivery.poll("", 30))
    await asyncio.sleep(0)
    await scene.deliver(scene.one)
    page = await polling
    assert page is not None and page.pieces[0].slot == ("digits", 1)


async def test_what_is_held_or_cannot_be_read_is_kept_by_the_agents(scene: Scene) -> None:
    del scene.shelf.manifests["digits", 2]
    await scene.deliver(scene.one, scene.two, held=[("other", 7)])
    assert (await scene.page()).keep == {("digits", 1), ("digits", 2), ("other", 7)}
    assert "no manifest" in scene.delivery.problem("gpu-1", scene.two)


async def test_a_replica_has_what_its_own_agent_reports(scene: Scene) -> None:
    page = await scene.paged(scene.one, scene.two)
    assert not scene.delivery.has("gpu-1", scene.one)
    assert "'servegate sync' has not reported" in scene.delivery.problem("gpu-1", scene.one)
    problems = {("digits", 2): "the disk is full"}
    assert scene.delivery.delivered("gpu-1", page, [("digits", 1)], problems)
    assert scene.delivery.has("gpu-1", scene.one) and not scene.delivery.has("gpu-2", scene.one)
    assert scene.delivery.problem("gpu-1", scene.one) == ""
    assert scene.delivery.problem("gpu-1", scene.two) == "the disk is full"


async def test_what_was_not_wanted_for_a_while_has_to_be_reported_anew(scene: Scene) -> None:
    page = await scene.paged(scene.one, scene.two)
    scene.delivery.delivered("gpu-1", page, [("digits", 1), ("digits", 2)], {})
    await scene.deliver(scene.two)
    assert scene.delivery.has("gpu-1", scene.two)
    await scene.deliver(scene.one, scene.two)
    assert not scene.delivery.has("gpu-1", scene.one)
    assert scene.delivery.has("gpu-1", scene.two)


async def test_only_a_report_on_the_latest_page_is_believed(scene: Scene) -> None:
    assert not scene.delivery.delivered("gpu-1", "0123-4567", [("digits", 1)], {})
    old = await scene.paged(scene.one)
    await scene.deliver(scene.one, scene.two)
    assert not scene.delivery.delivered("gpu-1", old, [("digits", 1)], {})
    assert not scene.delivery.has("gpu-1", scene.one)


async def test_a_page_that_comes_again_has_another_name_so_that_an_agent_reports_anew(
    scene: Scene,
) -> None:
    first = await scene.paged(scene.one)
    await scene.deliver()
    again = await scene.paged(scene.one)
    scene.delivery = AgentDelivery(scene.shelf)  # the control plane restarts
    assert len({first, again, await scene.paged(scene.one)}) == 3


async def test_only_blobs_that_a_triton_needs_are_given_out(scene: Scene) -> None:
    version = scene.shelf.publish(beside={"model_card.json": b"{}"})
    layout = scene.shelf.manifests["digits", 1].layout
    assert scene.delivery.wanted_blob(layout.version[0].sha256) is None
    await scene.deliver(version)
    assert scene.delivery.wanted_blob(layout.version[0].sha256) == layout.version[0]
    assert scene.delivery.wanted_blob(layout.documents[0].sha256) is None


async def test_an_agent_that_has_gone_silent_is_told_as_the_reason(scene: Scene) -> None:
    delivery, clock = scene.delivery, scene.clock
    await scene.deliver(scene.one)
    page = await delivery.poll("", 0, replica="gpu-1")
    assert page is not None and delivery.delivered("gpu-1", page.name, [("digits", 1)], {})
    await scene.deliver(scene.one, scene.two)
    polling = asyncio.create_task(delivery.poll("", 30, replica="gpu-1"))
    clock.now += 60
    await polling
    clock.now += SILENT - 1
    assert delivery.problem("gpu-1", scene.two) == ""
    clock.now += 2
    assert "has not polled for replica gpu-1 for 6 s" in delivery.problem("gpu-1", scene.two)
    assert delivery.problem("gpu-1", scene.one) == ""


def test_a_page_that_is_none_is_refused() -> None:
    for wrong in ({}, [], {"name": "x", "pieces": [{}], "keep": []}, 7):
        refusal(Invalid, Page.from_json, wrong)
