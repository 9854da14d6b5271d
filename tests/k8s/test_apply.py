"""What `kubectl apply -k` does with each kustomization, against the fake API server.

It shows that the order is right, that every kind is known, that applying again changes nothing and
that nothing that may not change does. It does not show that anything starts: there is no cluster.
"""

from typing import Any

import pytest
from fake_kubernetes.kinds import KINDS

from k8s.cluster import Cluster
from k8s.rendering import FOLDER, is_whole, kustomizations, name_of

NAMES = list(filter(is_whole, map(name_of, kustomizations())))
OVERLAYS = [name for name in NAMES if name.startswith("overlays/")]


def folder(name: str) -> str:
    return str(FOLDER / name)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_applied_and_applied_again_nothing_changes(name: str, bare: Cluster) -> None:
    first = bare.kubectl("apply", "-k", folder(name)).well().lines
    assert {line.split()[-1] for line in first} == {"created"}
    version = bare.api.version
    again = bare.kubectl("apply", "-k", folder(name)).well().lines
    assert len(again) == len(first)
    assert bare.api.version == version
    # kubectl says so of each PodDisruptionBudget: it always sends the whole of its selector
    budgets = [line for line in again if line.startswith("poddisruptionbudget.")]
    assert {line.split()[-1] for line in again if line not in budgets} == {"unchanged"}
    assert bare.kubectl("diff", "-k", folder(name)).well().out == ""


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_can_take_the_place_of_the_base(name: str, bare: Cluster) -> None:
    bare.kubectl("apply", "-k", folder("base")).well()
    bare.kubectl("apply", "-k", folder(name)).well()
    assert bare.kubectl("diff", "-k", folder(name)).well().out == ""


def test_what_was_deleted_is_gone(bare: Cluster) -> None:
    before = everything(bare)
    bare.kubectl("apply", "-k", folder("base")).well()
    bare.kubectl("delete", "-k", folder("base"), "--ignore-not-found").well()
    assert everything(bare) == before


def everything(cluster: Cluster) -> list[Any]:
    return [
        (kind.name, each["metadata"]["name"])
        for kind in KINDS
        for each in cluster.api.objects(kind.name)
    ]
