"""The EndpointSlices of a simulated fleet, in a fake Kubernetes API."""

from collections.abc import Iterable, Mapping
from typing import Any

from fake_kubernetes import FakeApi

from loadtests.bench.fleet_fakes import host_of, name_of

NAMESPACE, SERVICE = "servegate", "triton-default"
SLICE = 100  # endpoints, as Kubernetes' own controller fills them


class Cluster:
    """The EndpointSlices of one Service. `ports`: of every pod, by name."""

    def __init__(self, api: FakeApi, ports: Mapping[str, int]) -> None:
        self._api = api
        self._ports = ports
        self._slices: list[list[int]] = []
        self._ending: set[int] = set()

    def announce(self, numbers: Iterable[int]) -> None:
        """These are the pods, and no others."""
        names = sorted(numbers)
        before = len(self._slices)
        self._slices = [names[at : at + SLICE] for at in range(0, len(names), SLICE)]
        for index in range(len(self._slices)):
            self._put(index)
        for index in range(len(self._slices), before):
            self._api.delete("EndpointSlice", NAMESPACE, _slice_name(index))

    def add(self, number: int) -> None:
        """One more pod, in the last slice."""
        self._slices[-1].append(number)
        self._put(len(self._slices) - 1)

    def end(self, number: int) -> None:
        """A pod begins to end: it is still served from, and gets no new calls."""
        self._ending.add(number)
        self._put(self._slice_of(number))

    def take(self, number: int) -> None:
        """A pod has ended."""
        index = self._slice_of(number)
        self._ending.discard(number)
        self._slices[index].remove(number)
        self._put(index)

    def _slice_of(self, number: int) -> int:
        return next(at for at, names in enumerate(self._slices) if number in names)

    def _put(self, index: int) -> None:
        ports = self._ports.items()
        self._api.put(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": _slice_name(index),
                    "namespace": NAMESPACE,
                    "labels": {
                        "kubernetes.io/service-name": SERVICE,
                        "servegate.dev/pool": "default",
                    },
                },
                "addressType": "IPv4",
                "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports],
                "endpoints": [
                    _endpoint(number, ends=number in self._ending) for number in self._slices[index]
                ],
            }
        )


def _slice_name(index: int) -> str:
    return f"{SERVICE}-{index:03}"


def _endpoint(number: int, *, ends: bool) -> dict[str, Any]:
    return {
        "addresses": [host_of(number)],
        "conditions": {"ready": not ends, "serving": True, "terminating": ends},
        "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": name_of(number)},
        "nodeName": f"node-{number // 8:04}",
        "zone": "abc"[number % 3],
    }
