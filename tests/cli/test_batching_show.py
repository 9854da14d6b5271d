"""`servegate batching show`: what people read, and that what it suggests can be run."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from admin.api.admin_scene import send
from admin.api.test_batching import admin
from control.batching.test_advice import CASES
from control.batching.watched import OFF, Scene, decide, plain
from typer.main import get_command

from serve.cli.asked import ModelReference
from serve.cli.batching.edits import Edits, edited
from serve.cli.batching.view import lines
from serve.cli.client import AdminClient
from serve.cli.main import app
from serve.cli.versions import called_number
from serve.control.batching.hints import BEGINS
from serve.triton.config import parse

FULL = OFF + (
    "dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 9 } "
    "response_cache { enable: true }"
)
_PATH = "/api/models/m/versions/{}/batching"


def shown(scene: Scene, number: int = 1, *, blocks: bool = False) -> list[str]:
    """What is printed of a version, as the admin API tells it."""
    page = send(admin(scene), "GET", _PATH.format(number)).json()
    return list(lines(page, blocks=blocks))


def from_line(found: list[str], start: str) -> list[str]:
    """What follows a line that begins so, with it, up to an empty one."""
    first = next(place for place, line in enumerate(found) if line.startswith(start))
    rest = [*found[first:], ""]
    return rest[: rest.index("")]


def test_batches_are_drawn_as_bars_with_their_times(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    scene.look({1: (1000, 5), 4: (250, 8), 8: (500, 12)}, queue=2)
    found = shown(scene)
    assert found[0] == "m@1: max_batch_size 8, on a"
    assert "  shares its configuration with: 2 (Triton name m)" in found
    assert from_line(found, "last") == [
        "last 100 s, 1 replica: 6,000 calls, 60 calls/s, 0 waiting now",
        "  a call takes 2 ms in the queue + 10.2 ms of compute = 12.2 ms in Triton",
        "  instances are busy 13% of the time; a batch has 3.4 of 8 rows (occupancy 43%); a call "
        "has 1 row",
    ]
    assert from_line(found, "batches") == [
        "batches, by rows:",
        "  1  1,000   57.1%      5 ms  ########################",
        "  4    250   14.3%      8 ms  ######",
        "  8    500   28.6%     12 ms  ############",
        "  an execution takes about 4 ms + 1 ms per row",
    ]
    assert found[-1] == "advice: none"
    assert any("█" in line for line in shown(scene, blocks=True))


def test_advice_and_hints_are_told_with_their_commands(tmp_path: Path) -> None:
    scene = plain(tmp_path, config=OFF)
    scene.look({1: (30, 10)}, queue=20)
    assert shown(scene)[-1] == "advice: too few calls so far (30 of 100)"
    tuned = {"objective": "p99<50ms", "rate": 2.0}
    decide(scene.plane, "m", {"fields": {"max_batch_size": 16}, "group": "", "tuned": tuned})
    scene.look({1: (3000, 10)}, queue=20)
    for _ in range(BEGINS):
        scene.overviews.judge()
    found = shown(scene)
    assert "  changed after the push: max_batch_size" in found
    assert "  tuned for: p99<50ms, up to 2 calls/s per replica" in found
    assert from_line(found, "hints")[1].startswith("  a replica gets 30 calls/s, and it was")
    assert from_line(found, "hints")[2] == (
        "    try: servegate batching tune m@1 --slo 'p99<50ms'  [rate-above]"
    )
    assert "    try: servegate batching set m@1 --on  [batching-off]" in from_line(found, "advice")


def test_what_is_not_known_is_told_with_the_reason(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    found = shown(scene)
    assert "no statistics yet: they need two readings of a replica" in found
    assert found[-1] == "advice: too few calls so far (0 of 100)"
    for field in ("max_batch_size", "dynamic_batching"):
        assert any(line.startswith(f"  {field}: ") for line in found)
    scene.look({})
    assert "no calls in the last 100 s" in shown(scene)
    scene.look({}, calls=200)
    no_report = "  batch sizes unknown: the backend does not report executions"
    assert no_report in shown(scene)
    unheld = shown(scene, 2)
    assert unheld[0].startswith("m@2: max_batch_size 8, not loaded: ")
    assert "no statistics: no replica has loaded this version" in unheld


def test_a_version_whose_configuration_nobody_tells_is_told_so(tmp_path: Path) -> None:
    found = shown(plain(tmp_path, config=None), 2)
    assert found[1] == (
        "  configuration unknown: it has no config.pbtxt, and no replica has loaded it"
    )


def step(**others: Any) -> dict[str, Any]:
    base = {"path": "1", "name": "net", "version": 3, "asked": "net@3", "calls": 1200, "others": 0}
    numbers = {"queue": 0.002, "compute": 0.005, "rows_per_execution": 4.0, "share": 0.7}
    return base | numbers | others


def test_an_ensemble_is_told_with_its_steps_and_what_is_not_known(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    scene.look({1: (1000, 5)})
    page = send(admin(scene), "GET", _PATH.format(1)).json()
    steps = [
        step(),
        step(path="2", asked="post@1", others=200),
        step(path="2.1", asked="gone", calls=0),
    ]
    page["parts"] = {"kind": "ensemble", "steps": steps, "limit": "what is not known"}
    found = list(lines(page, blocks=False))
    assert from_line(found, "steps") == [
        "steps:",
        "  1 net@3   70% of the total, queue 2 ms, compute 5 ms, batches of 4.0; 1,200 calls",
        "  2 post@1  70% of the total, queue 2 ms, compute 5 ms, batches of 4.0; 1,200 calls, "
        "200 other calls",
        "  2.1 gone  no calls",
        "  (what is not known)",
    ]
    assert not any(line.startswith(("advice", "batches,")) for line in found)


@pytest.mark.parametrize("rule", CASES)
def test_what_advice_suggests_can_be_run(rule: str) -> None:
    situation, text = CASES[rule]
    words = shlex.split(text.partition("Try: ")[2].rpartition(" [")[0])
    assert words[:4] == ["servegate", "batching", "set", situation.asked]
    group = get_command(app)
    for word in words[1:3]:
        group = group.commands[word]  # type: ignore[attr-defined]
    said = group.make_context("set", words[3:]).params
    names = [one.name for one in fields(Edits) if said[one.name] not in (None, [], ())]
    edits = Edits(**{name: said[name] for name in names})
    present = parse(OFF if rule == "batching-off" else FULL)
    assert edited(present, present, edits) != {}


class Model(AdminClient):
    """A gateway that knows one model: its labels, its versions, and how its calls are split."""

    def __init__(self, split: dict[str, int]) -> None:
        super().__init__("http://127.0.0.1:9")
        self._split = split

    def get(self, path: str) -> Any:
        versions = [{"version": number} for number in (1, 2, 3)]
        return {"labels": {"candidate": 3}, "versions": versions, "split": self._split}


def test_without_a_version_the_one_that_gets_the_calls_is_meant() -> None:
    most, equal = {"1": 90, "2": 10}, {"1": 50, "2": 50}
    for split, selector, number in (
        (most, "", 1),
        (equal, "", 2),
        (most, "candidate", 3),
        (most, "2", 2),
        ({}, "", 3),
    ):
        assert called_number(Model(split), ModelReference("m", selector)) == number
