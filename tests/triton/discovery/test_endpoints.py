"""Endpoints: what EndpointSlices say, read as Kubernetes means it."""

from typing import Any

from endpoint_slices import endpoint_slice, pod

from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint, read


def only(*slices: Any) -> Endpoint:
    """The one endpoint of these slices, in which nothing is wrong."""
    listing = read(slices)
    assert listing.problems == ()
    (one,) = listing.endpoints
    return one


def test_a_pod_is_a_replica_that_is_called_after_it_in_the_pool_of_its_services_label() -> None:
    one = only(endpoint_slice(pod("triton-a100-x", "10.0.0.7", zone="eu-1b"), pool="a100"))
    assert one.replica == Replica("triton-a100-x", "10.0.0.7", 8000, 8001, 8002, "a100")
    assert one.zone == "eu-1b"


def test_ports_are_found_by_their_names_whatever_their_numbers_and_their_order() -> None:
    ports = {"metrics": 3, "grpc": 2, "other": 9, "http": 1}
    replica = only(endpoint_slice(pod("x"), ports=ports)).replica
    assert (replica.http_port, replica.grpc_port, replica.metrics_port) == (1, 2, 3)


def test_each_slice_of_a_service_has_its_own_ports() -> None:
    old = endpoint_slice(pod("old", "10.0.0.1"), name="s-1")
    new = endpoint_slice(
        pod("new", "10.0.0.2"), name="s-2", ports={"http": 1, "grpc": 2, "metrics": 3}
    )
    found = {one.replica.name: one.replica.address for one in read([old, new]).endpoints}
    assert found == {"new": "10.0.0.2:1:2:3", "old": "10.0.0.1:8000:8001:8002"}


def test_what_is_not_said_of_an_endpoint_is_what_kubernetes_means_by_that() -> None:
    bare = {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "x"}}
    assert only(endpoint_slice(bare)).is_ready
    for said, ready, serving, terminating in (
        (None, True, True, False),
        ({}, True, True, False),
        ({"ready": False}, False, False, False),
        ({"ready": True, "serving": False}, True, False, False),  # publishNotReadyAddresses
        ({"ready": False, "serving": True, "terminating": True}, False, True, True),
        ({"terminating": False}, True, True, False),
    ):
        one = only(endpoint_slice(bare | {"conditions": said}))
        found = (one.is_ready, one.is_serving, one.is_terminating)
        assert found == (ready, serving, terminating), said


def test_an_endpoint_that_is_no_pod_is_called_after_its_host_name_or_else_its_address() -> None:
    machine = {"addresses": ["10.0.0.9"], "hostname": "gpu-9"}
    assert only(endpoint_slice(machine)).replica.name == "gpu-9"
    assert only(endpoint_slice({"addresses": ["10.0.0.9"]})).replica.name == "10.0.0.9"
    other = {"addresses": ["10.0.0.9"], "targetRef": {"kind": "Node", "name": "n"}}
    assert only(endpoint_slice(other)).replica.name == "10.0.0.9"


def test_of_a_pod_that_is_in_two_slices_at_once_the_newest_is_right() -> None:
    old = endpoint_slice(pod("x", ready=False), name="s-2")
    new = endpoint_slice(pod("x", ready=True), name="s-1")
    assert only(old, new).is_ready
    assert not only(new, old).is_ready


def test_a_pod_with_an_address_of_each_family_is_one_replica_at_the_first_one() -> None:
    four = endpoint_slice(pod("x", "10.0.0.7"), name="s-4")
    six = endpoint_slice(pod("x", "fd00::7"), name="s-6", family="IPv6")
    for slices in ((four, six), (six, four)):
        assert only(*slices).replica.host == "10.0.0.7"
    assert only(six).replica.grpc_target == "[fd00::7]:8001"


def test_a_pod_that_one_family_calls_terminating_is_terminating() -> None:
    four = endpoint_slice(pod("x", "10.0.0.7"), name="s-4")
    six = endpoint_slice(pod("x", "fd00::7", terminating=True), name="s-6", family="IPv6")
    assert only(six, four).is_terminating


def test_a_host_name_is_an_address_and_of_several_addresses_the_first_is_called() -> None:
    one = {"addresses": ["GPU-1.example.org"], "hostname": "gpu-1"}
    assert only(endpoint_slice(one, family="FQDN")).replica.host == "gpu-1.example.org"
    two = pod("x") | {"addresses": ["10.0.0.3", "10.0.0.4"]}
    assert only(endpoint_slice(two)).replica.host == "10.0.0.3"


def test_the_pods_of_a_service_that_lacks_a_port_are_left_out_and_told() -> None:
    bad = endpoint_slice(pod("x"), pool="bad", ports={"http": 8000, "web": 80})
    good = endpoint_slice(pod("y", "10.0.0.2"), pool="good")
    listing = read([bad, good])
    assert [one.replica.name for one in listing.endpoints] == ["y"]
    (problem,) = listing.problems
    assert "Service triton-bad" in problem and "no port grpc, metrics" in problem


def test_a_slice_without_pods_lacks_nothing() -> None:
    empty = endpoint_slice(ports={}) | {"endpoints": None, "ports": None}
    listing = read([empty])
    assert (listing.endpoints, listing.problems) == ((), ())


def test_a_pod_of_two_pools_counts_for_one_of_them_and_is_told() -> None:
    first = endpoint_slice(pod("x"), pool="a", service="s1")
    second = endpoint_slice(pod("x"), pool="b", service="s2")
    for slices in ((first, second), (second, first)):
        listing = read(slices)
        assert [one.replica.pool for one in listing.endpoints] == ["a"]
        assert listing.problems == (
            "x is in several pools, and is used in a: s1 (pool a), s2 (pool b)",
        )


GOOD = endpoint_slice(pod("good", "10.0.0.9"), pool="good")
BROKEN: list[Any] = [
    None,
    [],
    {},
    {"metadata": None},
    {"metadata": {"name": "s"}},
    endpoint_slice(pod("x")) | {"endpoints": 7},
    endpoint_slice(pod("x")) | {"ports": [None]},
    endpoint_slice(pod("x")) | {"ports": [{"name": "http", "port": None}]},
    endpoint_slice(pod("x")) | {"addressType": "IPv9"},
    endpoint_slice(pod("x", "fd00::1")),
    endpoint_slice(pod("x", "10.0.0.300")),
    endpoint_slice(pod("x", "fe80::1%eth0"), family="IPv6"),
    endpoint_slice(pod("x", "a b"), family="FQDN"),
    endpoint_slice(pod("x") | {"addresses": []}),
    endpoint_slice(pod("x") | {"conditions": "ready"}),
    endpoint_slice(pod("x"), ports={"http": 0, "grpc": 1, "metrics": 70000}),
]


def test_what_cannot_be_read_is_told_and_harms_nothing_else() -> None:
    for broken in BROKEN:
        listing = read([broken, GOOD])
        assert [one.replica.name for one in listing.endpoints] == ["good"], broken
        assert len(listing.problems) == 1, broken
