"""Mirrored calls: which ones, how many at a time, and what is counted."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from builders import Clock, snapshot, target, until, view
from builders import call as call_of
from refusals import refusal

from serve.core.calls import Choice, Reply
from serve.core.errors import BodyTooLarge, Invalid, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.core.routes import Mirror, Route, RouteMatch, RouteRules, Split
from serve.core.snapshot import ModelView, VersionTarget
from serve.proxy import mirrors
from serve.proxy.health import Health
from serve.proxy.loads import Loads
from serve.proxy.mirrors import MirroredCall, Mirrors
from serve.proxy.routing import Routing
from serve.telemetry import Meters

BOTH = (target(1, "a"), target(2, "a", "b"))


def mirrored(percent: float = 50.0, *, keep: bool = False, **more: object) -> ModelView:
    rules = RouteRules(mirror=Mirror(2, percent, keep=keep), **more)  # type: ignore[typeddict-item]
    return view(*BOTH, split="1=1", rules=rules, labels={"stable": 1})


def choose(model: ModelView, selector: str = "", draw: float = 0.0) -> Choice:
    return Routing(snapshot(model)).choose(call_of(selector=selector), lambda: draw)


class Copies:
    """`Mirrors` whose copies end when a test lets them, in any way."""

    def __init__(self, draw: float = 0.0) -> None:
        self.now = snapshot(mirrored())
        self.sent: list[tuple[MirroredCall, Replica, float]] = []
        self.ends: list[asyncio.Future[Reply]] = []
        self.kept: list[MirroredCall] = []
        self.may_compare = asyncio.Event()
        self.may_compare.set()
        self.loads, self.meters, self.clock = Loads(), Meters(), Clock()
        self.health = Health(self.clock)
        self.mirrors = Mirrors(
            replicas=lambda: self.now.replicas,
            loads=self.loads,
            health=self.health,
            meters=self.meters,
            draw=lambda: draw,
            clock=self.clock,
            senders={"http": self.send},
            compare=self.compare,
            keep=self.keep,
            seconds=30.0,
        )
        self.choice = choose(mirrored())

    async def send(self, call: MirroredCall, replica: Replica, until: float) -> Reply:
        end: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.sent.append((call, replica, until))
        self.ends.append(end)
        return await end

    async def compare(self, call: MirroredCall, reply: Reply) -> Mapping[str, tuple[int, int]]:
        assert call.response is not None
        await self.may_compare.wait()
        if reply.body == b"fault":
            raise RuntimeError("a fault of ours")
        if reply.body == b"strange":
            raise Invalid("unreadable")
        same = reply.body == call.response.body
        return {"y": (3, 0) if same else (1, 2)}

    async def keep(self, call: MirroredCall) -> None:
        self.kept.append(call)

    async def close(self) -> None:
        self.mirrors.close()
        await until(lambda: not self.mirrors.busy)

    def offer(self, count: int = 1, size: int = 10, response: Reply | None = None) -> None:
        for _ in range(count):
            pieces = (b"body",)
            call = MirroredCall(self.choice, "http", b"head", pieces, size, response)
            self.mirrors.offer(call)

    def ended(self, code: str) -> float:
        labels = {"model": "m", "version": "2", "protocol": "http", "code": code}
        return self.meters.registry.get_sample_value("servegate_mirrored_calls_total", labels) or 0

    def compared(self, **labels: str) -> float:
        name = "rows" if "output" in labels else "comparisons"
        about = {"model": "m", "version": "2", **labels}
        return self.meters.registry.get_sample_value(f"servegate_mirror_{name}_total", about) or 0

    def dropped(self, reason: str) -> float:
        labels = {"model": "m", "version": "2", "reason": reason}
        return self.meters.registry.get_sample_value("servegate_mirror_drops_total", labels) or 0


def test_calls_that_name_no_version_are_mirrored_to_another_one() -> None:
    chosen = choose(mirrored(10))
    assert chosen.mirror is not None
    assert (chosen.target.version, chosen.mirror.target.version) == (1, 2)
    assert chosen.mirror.share == pytest.approx(0.1)
    blue = RouteMatch(Split.of({1: 1}), header="x-team", value="*")
    assert choose(mirrored(matches=(blue,))).mirror is not None
    for selector in ("1", "stable"):
        assert choose(mirrored(), selector).mirror is None, selector


def test_what_must_not_be_mirrored_is_not() -> None:
    sequences = view(*BOTH, split="1=1", rules={"mirror": Mirror(2, 50)}, sequences=True)
    absent = view(BOTH[0], split="1=1", rules={"mirror": Mirror(2, 50)})
    itself = view(*BOTH, split="2=1", rules={"mirror": Mirror(2, 50)})
    for model in (sequences, absent, itself, view(*BOTH, split="1=1")):
        assert choose(model).mirror is None
    coded = view(BOTH[0], code(2), split="1=1", rules={"mirror": Mirror(2, 50)})
    assert choose(coded).mirror is None
    allowed = view(BOTH[0], code(2), split="1=1", rules={"mirror": Mirror(2, 50, code=True)})
    assert choose(allowed).mirror is not None


def code(version: int) -> VersionTarget:
    return replace(target(version, "b"), calls_others=True)


async def test_a_share_of_the_calls_is_wanted() -> None:
    for draw, wanted in ((0.0, True), (0.49, True), (0.5, False), (0.99, False)):
        copies = Copies(draw)
        assert copies.mirrors.wants(copies.choice) is wanted, draw
    assert not copies.mirrors.wants(choose(mirrored(), "1"))


async def test_a_copy_goes_to_a_replica_of_the_candidate_and_is_counted() -> None:
    copies = Copies()
    copies.offer()
    await until(lambda: len(copies.sent) == 1)
    [(call, replica, ends)] = copies.sent
    assert call.target.version == 2 and replica.name in {"a", "b"}
    assert ends == copies.clock.now + 30
    assert copies.loads.on_replica(replica.name) == 1, "others are preferred meanwhile"
    copies.clock.now += 0.2
    copies.ends[0].set_result(Reply(200, b"{}"))
    await until(lambda: copies.ended("200") == 1)
    assert not copies.loads.replicas
    seconds = "servegate_mirrored_call_seconds_sum"
    labels = {"model": "m", "version": "2", "protocol": "http"}
    assert copies.meters.registry.get_sample_value(seconds, labels) == pytest.approx(0.2)


async def test_a_copy_that_fails_is_counted_and_holds_nothing_against_its_replica() -> None:
    copies = Copies()
    for error, count in (
        (NotSent("no connection"), "not_sent"),
        (OutcomeUnknown("broke"), "outcome_unknown"),
        (RuntimeError("a fault of ours"), "error"),
    ):
        copies.offer()
        await until(lambda: bool(copies.ends))
        copies.ends.pop().set_exception(error)
        await until(lambda name=count: copies.ended(name) == 1)
    assert not copies.loads.replicas and not copies.health.pauses
    copies.now = snapshot(view())
    copies.offer()
    await until(lambda: copies.ended("no_replica") == 1)
    await copies.close()


async def test_responses_are_compared_where_both_are_there_and_good() -> None:
    copies = Copies()
    served = Reply(200, b"same")
    for body, response, outcome in (
        (b"same", served, "compared"),
        (b"other", served, "compared"),
        (b"same", None, "not_kept"),
        (b"strange", served, "invalid"),
        (b"fault", served, "error"),
    ):
        before = copies.compared(outcome=outcome)
        copies.offer(response=response)
        await until(lambda: bool(copies.ends))
        copies.ends.pop().set_result(Reply(200, body))
        await until(lambda name=outcome, seen=before: copies.compared(outcome=name) == seen + 1)
    copies.offer(response=served)
    await until(lambda: bool(copies.ends))
    copies.ends.pop().set_result(Reply(500, b"same"))
    await until(lambda: copies.ended("500") == 1)
    assert copies.compared(outcome="compared") == 2
    assert copies.compared(output="y", verdict="agrees") == 4
    assert copies.compared(output="y", verdict="differs") == 2


async def test_slow_comparisons_hold_up_no_copies() -> None:
    copies = Copies()
    copies.may_compare.clear()
    count = mirrors.MOST_COMPARED + 3
    copies.offer(count, response=Reply(200, b"same"))
    await until(lambda: len(copies.ends) == count)
    for end in copies.ends:
        end.set_result(Reply(200, b"same"))
    await until(lambda: copies.compared(outcome="skipped") == 3)
    await until(lambda: copies.mirrors.busy == mirrors.MOST_COMPARED)
    copies.may_compare.set()
    await until(lambda: copies.compared(outcome="compared") == mirrors.MOST_COMPARED)


async def test_only_so_many_responses_are_compared_per_second() -> None:
    copies, done = Copies(), 0
    for seconds, expected in ((0.0, mirrors.COMPARED_AT_ONCE), (0.5, 5), (3600, 32)):
        copies.clock.now += seconds
        before = copies.compared(outcome="compared")
        for _ in range(40):
            copies.offer(response=Reply(200, b"same"))
            await until(lambda: bool(copies.ends))
            copies.ends.pop().set_result(Reply(200, b"same"))
            done += 1
            await until(lambda wanted=done: copies.ended("200") == wanted)
            await until(lambda: not copies.mirrors.busy)
        assert copies.compared(outcome="compared") - before == expected


async def test_some_calls_with_different_responses_are_kept_if_the_route_says_so() -> None:
    for keep in (False, True):
        copies = Copies()
        copies.choice = choose(mirrored(keep=keep))
        for body, seconds, expected in (
            (b"same", 0.0, 0),
            (b"other", 0.0, 1),
            (b"other", mirrors.KEPT_EVERY / 2, 1),
            (b"other", mirrors.KEPT_EVERY / 2, 2),
        ):
            copies.clock.now += seconds
            before = copies.ended("200")
            copies.offer(response=Reply(200, b"same"))
            await until(lambda made=copies: bool(made.ends))
            copies.ends.pop().set_result(Reply(200, body))
            await until(lambda made=copies, seen=before: made.ended("200") == seen + 1)
            await until(lambda made=copies: not made.mirrors.busy)
            assert len(copies.kept) == (expected if keep else 0), (keep, body, seconds)


async def test_only_so_many_copies_are_sent_at_a_time_and_only_so_many_wait() -> None:
    copies = Copies()
    copies.offer(mirrors.MOST_SENT + mirrors.MOST_WAITING)
    assert copies.dropped("queue_full") == 0
    copies.offer(3)
    assert copies.dropped("queue_full") == 3
    await until(lambda: len(copies.sent) == mirrors.MOST_SENT)
    copies.ends[0].set_result(Reply(200, b""))
    await until(lambda: len(copies.sent) == mirrors.MOST_SENT + 1)
    copies.offer()
    assert copies.dropped("queue_full") == 3
    await copies.close()


async def test_only_so_many_bytes_are_kept_for_copies() -> None:
    copies = Copies()
    copies.offer(2, mirrors.MOST_BYTES // 2)
    copies.offer(1, 1)
    assert copies.dropped("queue_full") == 1
    await until(lambda: len(copies.sent) == 2)
    copies.ends[0].set_result(Reply(200, b""))
    await until(lambda: copies.ended("200") == 1)
    copies.offer(1, 1)
    assert copies.dropped("queue_full") == 1
    await copies.close()


async def test_a_response_that_is_too_large_is_not_compared() -> None:
    copies = Copies()
    copies.offer(response=Reply(200, b"same"))
    await until(lambda: bool(copies.ends))
    copies.ends.pop().set_exception(BodyTooLarge(10))
    await until(lambda: copies.compared(outcome="too_large") == 1)
    assert copies.ended("200") == 1, "the candidate has responded"


async def test_the_response_to_compare_with_counts_as_bytes_too() -> None:
    copies = Copies()
    large = Reply(200, bytes(mirrors.MOST_BYTES // 2))
    copies.offer(2, size=1, response=large)
    assert copies.dropped("queue_full") == 1
    await copies.close()


async def test_nothing_is_sent_after_the_end() -> None:
    copies = Copies()
    copies.offer(mirrors.MOST_SENT + 5)
    await until(lambda: len(copies.sent) == mirrors.MOST_SENT)
    copies.mirrors.close()
    await until(lambda: not copies.loads.replicas)
    assert len(copies.sent) == mirrors.MOST_SENT


def test_a_route_knows_its_mirror() -> None:
    route = Route(Split.of({1: 1}), mirror=Mirror.parse("2=12.5"))
    assert Route.from_json(route.to_json()) == route
    assert (route.versions, route.called) == ((1, 2), {1})
    assert Mirror.from_json({}) is None
    for wrong in ({"percent": 5}, {"version": 2}, {"version": 0, "percent": 5}, {"kep": True}):
        refusal(Invalid, Mirror.from_json, wrong)
    assert Mirror.parse("2=10%", code=True) == Mirror(2, 10.0, code=True)
