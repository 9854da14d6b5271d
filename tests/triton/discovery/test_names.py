"""Names: replicas at the addresses of a host name."""

import asyncio
import socket
from collections.abc import Collection, Mapping

from ticking import Ticks

from serve.core.errors import ServegateError
from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Listing
from serve.triton.discovery.names import NamedReplicas, replicas_at, resolve

MODEL = Replica("dns=tritons:1:2:3@a100", "tritons", 1, 2, 3, "a100")
FOUR, SIX = socket.AF_INET, socket.AF_INET6
NONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
Answer = Collection[str] | OSError


class FakeResolver:
    """What each family is answered now."""

    def __init__(self, four: Answer, six: Answer = NONE) -> None:
        self.answers: dict[int, Answer] = {FOUR: four, SIX: six}
        self.hosts: list[str] = []

    async def __call__(self, host: str, family: socket.AddressFamily) -> Collection[str]:
        self.hosts.append(host)
        answer = self.answers[family]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Heard:
    """Everything that was told."""

    def __init__(self) -> None:
        self.news: list[list[str] | str] = []
        self.wells = 0

    def told(self, listing: Listing) -> None:
        self.news.append([one.replica.address for one in listing.endpoints])

    def well(self) -> None:
        self.wells += 1

    def failed(self, error: ServegateError) -> None:
        self.news.append(error.why)


def looks(
    resolver: FakeResolver, *then: Mapping[int, Answer], wells: int = -1
) -> list[list[str] | str]:
    """What is told by a first look, and one after each of these changes; `wells` may be counted."""

    async def work() -> list[list[str] | str]:
        heard, ticks = Heard(), Ticks()
        running = asyncio.create_task(
            NamedReplicas(MODEL, resolve=resolver, sleep=ticks).run(heard)
        )
        await ticks.asked()
        for answers in then:
            resolver.answers |= answers
            count = len(ticks.lengths)
            ticks.tick()
            await ticks.asked_times(count + 1)
        running.cancel()
        assert wells in (-1, heard.wells)
        return heard.news

    return asyncio.run(work())


def test_every_address_is_a_replica_with_the_ports_and_the_pool_of_the_name() -> None:
    listing = replicas_at(MODEL, ["10.0.0.9", "10.0.0.10", "10.0.0.9"])
    assert [one.replica for one in listing.endpoints] == [
        Replica("a100-10.0.0.10", "10.0.0.10", 1, 2, 3, "a100"),
        Replica("a100-10.0.0.9", "10.0.0.9", 1, 2, 3, "a100"),
    ]


def test_an_address_has_one_name_however_it_is_written() -> None:
    for text in ("fd00::7", "FD00:0:0::7"):
        (one,) = replicas_at(MODEL, [text]).endpoints
        assert (one.replica.name, one.replica.host) == ("a100-fd00--7", "fd00::7")


def test_addresses_that_come_and_go_are_told() -> None:
    resolver = FakeResolver(["10.0.0.1"])
    then = {FOUR: ["10.0.0.2", "10.0.0.1"]}, {FOUR: ["10.0.0.2"]}
    assert looks(resolver, *then) == [
        ["10.0.0.1:1:2:3"],
        ["10.0.0.1:1:2:3", "10.0.0.2:1:2:3"],
        ["10.0.0.2:1:2:3"],
    ]
    assert set(resolver.hosts) == {"tritons"}


def test_a_name_that_is_not_found_tells_of_no_replicas_that_are_gone() -> None:
    for failure in (NONE, AGAIN, OSError("the resolver is away")):
        first, second, third = looks(
            FakeResolver(["10.0.0.1"]), {FOUR: failure}, {FOUR: ["10.0.0.1"]}, wells=2
        )
        assert first == third == ["10.0.0.1:1:2:3"], failure
        assert second == str(failure), failure


def test_where_there_are_addresses_of_both_families_those_of_ipv4_count() -> None:
    assert looks(FakeResolver(["10.0.0.1"], ["fd00::1"])) == [["10.0.0.1:1:2:3"]]
    assert looks(FakeResolver(NONE, ["fd00::1"])) == [["[fd00::1]:1:2:3"]]
    assert looks(FakeResolver([], ["fd00::1"])) == [["[fd00::1]:1:2:3"]]


def test_the_family_that_was_found_first_stays_the_one() -> None:
    told = looks(FakeResolver(["10.0.0.1"], ["fd00::1"]), {FOUR: NONE}, {FOUR: ["10.0.0.1"]})
    assert told == [["10.0.0.1:1:2:3"], str(NONE), ["10.0.0.1:1:2:3"]]


def test_a_resolver_that_fails_for_one_family_does_not_bring_the_other() -> None:
    assert looks(FakeResolver(AGAIN, ["fd00::1"])) == [str(AGAIN)]


def test_what_is_no_address_is_a_failure() -> None:
    ((first),) = looks(FakeResolver(["not an address"]))
    assert "not an address" in str(first)


def test_names_are_resolved_as_this_machine_does() -> None:
    assert asyncio.run(resolve("localhost", FOUR)) == {"127.0.0.1"}
    assert asyncio.run(resolve("127.0.0.2", FOUR)) == {"127.0.0.2"}
