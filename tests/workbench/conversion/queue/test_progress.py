"""What a job tells, and who waits for it."""

import asyncio
import json

from builders import Clock
from loops import in_loop

from serve.workbench.conversion.queue.progress import MOST, ConversionProgress


def told(*events: dict[str, object]) -> ConversionProgress:
    progress = ConversionProgress(Clock(5.0))
    for event in events:
        progress.tell(event)
    return progress


def test_events_are_numbered_and_dated() -> None:
    progress = told({"type": "stage", "stage": "open"}, {"type": "note", "text": "so"})
    assert progress.since(0) == (
        {"number": 1, "at": 5.0, "type": "stage", "stage": "open"},
        {"number": 2, "at": 5.0, "type": "note", "text": "so"},
    )
    assert progress.since(1) == progress.events[1:]
    assert progress.since(2) == ()
    assert progress.since(77) == progress.events  # a number of an earlier process
    assert progress.stage == "open"


def test_how_far_a_stage_is_replaces_how_far_it_was() -> None:
    progress = told(*({"type": "share", "stage": "numbers", "done": n} for n in range(9)))
    [event] = progress.events
    assert (event["number"], event["done"]) == (9, 8)


def test_only_the_newest_are_kept() -> None:
    progress = told(*({"type": "note", "text": str(n)} for n in range(MOST + 10)))
    assert len(progress.events) == MOST
    assert progress.events[-1]["text"] == str(MOST + 9)


def test_of_what_a_child_says_only_known_fields_are_kept_and_can_be_written() -> None:
    progress = told(
        {
            "type": "x" * 999,
            "text": "\ud800" + "y" * 10_000,
            "done": float("nan"),
            "total": [1],
            "number": -5,
            "else": {"deep": "er"},
        }
    )
    [event] = progress.events
    assert set(event) == {"number", "at", "type", "text"}
    assert (event["number"], len(event["type"]), len(event["text"])) == (1, 40, 2000)
    json.dumps(event, ensure_ascii=False, allow_nan=False).encode()


@in_loop
async def test_who_waits_is_woken_by_the_next_event() -> None:
    progress = told({"type": "note", "text": "old"})
    waiting = asyncio.create_task(progress.news(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    progress.tell({"type": "note", "text": "new"})
    [event] = await waiting
    assert event["text"] == "new"
