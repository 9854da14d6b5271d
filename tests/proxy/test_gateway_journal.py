"""The gateway's journal: which calls are written down, and who made them."""

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from builders import DataPlane, call, snapshot, target, view

from serve.core.access import ApiKey, Role
from serve.core.calls import Reply, Verb
from serve.proxy.journal import EndedCall

BROKEN = Reply(500, b'{"error":"x"}')


@dataclass(slots=True)
class Journal:
    """Remembers what it is told; `share` says whether it takes good calls."""

    share: bool = True
    lines: list[dict[str, Any]] = field(default_factory=list)

    def takes(self) -> bool:
        return self.share

    def write(self, ended: EndedCall) -> None:
        told = {name: getattr(ended, name) for name in EndedCall.__slots__}
        del told["call"]
        picked = told.pop("choice")
        version = picked and picked.target.version
        self.lines.append(told | {"version": version, "replica": ended.replica.name})


def test_a_call_is_written_down_with_what_became_of_it() -> None:
    journal = Journal()
    plane = DataPlane(snapshot(view(target(2))), journal=journal)
    attempt = plane.begin()
    plane.clock.now += 0.25
    attempt.answered(200, good=True)
    assert journal.lines == [
        {
            "version": 2,
            "replica": "a",
            "code": "200",
            "seconds": 0.25,
            "error": "",
            "tries": 1,
            "good": True,
            "key": "",
        }
    ]


def test_good_calls_are_left_out_by_their_share_and_others_never() -> None:
    journal = Journal(share=False)
    plane = DataPlane(snapshot(view(target(1, "a", "b"))), journal=journal)
    plane.walk()
    plane.walk(BROKEN)
    plane.walk(asked=call(model="unknown"))
    plane.begin().left()
    assert [(line["code"], line["error"], line["good"]) for line in journal.lines] == [
        ("500", "", False),
        ("unknown_model", "unknown_model", False),
        ("client_left", "client_left", False),
    ]


def test_a_key_is_named_by_its_id_once_it_was_found_to_be_good() -> None:
    journal = Journal()
    key, words = ApiKey.create(Role.PREDICTOR)
    held = replace(snapshot(view(target())), keys=MappingProxyType({key.id: key}), guarded=True)
    plane = DataPlane(held, journal=journal)
    for shown in (words, words[:-1] + ("a" if words[-1] != "a" else "b"), ""):
        asked = call(Verb.INFER)
        asked.credential = f"Bearer {shown}".encode()
        plane.walk(asked=asked)
    assert [(line["error"], line["key"]) for line in journal.lines] == [
        ("", key.id),
        ("unauthenticated", ""),
        ("unauthenticated", ""),
    ]
