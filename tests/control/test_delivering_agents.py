"""Delivery by agents: what they are told, when, and which of their reports are believed."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from builders import Clock
from control.delivering_scene import Shelf

from serve.control.deliveries.agents import SILENT, AgentDelivery, Page
from serve.control.deliveries.delivery import Slot
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid


class Scene:
    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder / "shelf")
        self.delivery = AgentDelivery(self.shelf)
        self.run = asyncio.Runner().run  # one loop for all that waits

    def deliver(self, *wanted: PublishedVersion, held: Collection[Slot] = ()) -> None:
        self.run(self.delivery.deliver(wanted, held))

    def poll(self, have: str = "") -> Page | None:
        return self.run(self.delivery.poll(have, 0))

    def page(self, have: str = "") -> Page:
        page = self.poll(have)
        assert page is not None
        return page


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_before_anything_is_known_an_agent_is_told_nothing(scene: Scene) -> None:
    assert scene.poll() is None and scene.poll("0123-4567") is None


def test_an_agent_gets_the_page_once_and_again_after_a_change(scene: Scene) -> None:
    one, two = scene.shelf.publish(), scene.shelf.publish(number=2)
    scene.deliver(one)
    first = scene.page()
    assert [piece.slot for piece in first.pieces] == [("digits", 1)]
    assert Page.from_json(first.to_json()) == first
    assert scene.poll(first.name) is None
    scene.deliver(one)
    assert scene.poll(first.name) is None
    scene.deliver(one, two)
    assert scene.page(first.name).keep == {("digits", 1), ("digits", 2)}


def test_a_waiting_agent_is_woken_by_a_change(scene: Scene) -> None:
    one = scene.shelf.publish()

    async def scenario() -> Page | None:
        polling = asyncio.create_task(scene.delivery.poll("", 30))
        await asyncio.sleep(0)
        await scene.delivery.deliver([one], ())
        return await polling

    page = scene.run(scenario())
    assert page is not None and page.pieces[0].slot == ("digits", 1)


def test_what_is_held_or_cannot_be_read_is_kept_by_the_agents(scene: Scene) -> None:
    one, two = scene.shelf.publish(), scene.shelf.publish(number=2)
    del scene.shelf.manifests["digits", 2]
    scene.deliver(one, two, held=[("other", 7)])
    assert scene.page().keep == {("digits", 1), ("digits", 2), ("other", 7)}
    assert "no manifest" in scene.delivery.problem("gpu-1", two)


def test_a_replica_has_what_its_own_agent_reports(scene: Scene) -> None:
    one, two = scene.shelf.publish(), scene.shelf.publish(number=2)
    scene.deliver(one, two)
    page = scene.page()
    assert not scene.delivery.has("gpu-1", one)
    assert "'servegate sync' has not reported" in scene.delivery.problem("gpu-1", one)
    problems = {("digits", 2): "the disk is full"}
    assert scene.delivery.delivered("gpu-1", page.name, [("digits", 1)], problems)
    assert scene.delivery.has("gpu-1", one) and not scene.delivery.has("gpu-2", one)
    assert scene.delivery.problem("gpu-1", one) == ""
    assert scene.delivery.problem("gpu-1", two) == "the disk is full"


def test_what_was_not_wanted_for_a_while_has_to_be_reported_anew(scene: Scene) -> None:
    one, two = scene.shelf.publish(), scene.shelf.publish(number=2)
    scene.deliver(one, two)
    page = scene.page().name
    scene.delivery.delivered("gpu-1", page, [("digits", 1), ("digits", 2)], {})
    scene.deliver(two)
    assert scene.delivery.has("gpu-1", two)
    scene.deliver(one, two)
    assert not scene.delivery.has("gpu-1", one)
    assert scene.delivery.has("gpu-1", two)


def test_only_a_report_on_the_latest_page_is_believed(scene: Scene) -> None:
    one, two = scene.shelf.publish(), scene.shelf.publish(number=2)
    assert not scene.delivery.delivered("gpu-1", "0123-4567", [("digits", 1)], {})
    scene.deliver(one)
    old = scene.page().name
    scene.deliver(one, two)
    assert not scene.delivery.delivered("gpu-1", old, [("digits", 1)], {})
    assert not scene.delivery.has("gpu-1", one)


def test_after_a_restart_of_the_control_plane_the_same_page_has_another_name(scene: Scene) -> None:
    one = scene.shelf.publish()
    scene.deliver(one)
    before = scene.page()
    scene.delivery = AgentDelivery(scene.shelf)
    scene.deliver(one)
    after = scene.page(before.name)
    assert after.pieces == before.pieces and after.name != before.name


def test_only_blobs_that_a_triton_needs_are_given_out(scene: Scene) -> None:
    version = scene.shelf.publish(beside={"model_card.json": b"{}"})
    layout = scene.shelf.manifests["digits", 1].layout
    assert scene.delivery.wanted_blob(layout.version[0].sha256) is None
    scene.deliver(version)
    assert scene.delivery.wanted_blob(layout.version[0].sha256) == layout.version[0]
    assert scene.delivery.wanted_blob(layout.documents[0].sha256) is None


@pytest.mark.parametrize("wrong", [{}, [], {"name": "x", "pieces": [{}], "keep": []}, 7])
def test_a_page_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(Invalid):
        Page.from_json(wrong)


def test_a_page_that_comes_again_has_another_name_so_that_an_agent_reports_anew(
    scene: Scene,
) -> None:
    one = scene.shelf.publish()
    scene.deliver(one)
    first = scene.page().name
    scene.deliver()
    scene.deliver(one)
    assert scene.page(first).name != first


async def test_an_agent_that_has_gone_silent_is_told_as_the_reason(tmp_path: Path) -> None:
    shelf, clock = Shelf(tmp_path), Clock()
    delivery = AgentDelivery(shelf, clock=clock)
    one, two = shelf.publish(), shelf.publish(number=2)
    await delivery.deliver([one], ())
    page = await delivery.poll("", 0, replica="gpu-1")
    assert page is not None and delivery.delivered("gpu-1", page.name, [("digits", 1)], {})
    await delivery.deliver([one, two], ())
    polling = asyncio.create_task(delivery.poll("", 30, replica="gpu-1"))
    clock.now += 60
    await polling
    clock.now += SILENT - 1
    assert delivery.problem("gpu-1", two) == ""
    clock.now += 2
    assert "has not polled for replica gpu-1 for 6 s" in delivery.problem("gpu-1", two)
    assert delivery.problem("gpu-1", one) == ""
