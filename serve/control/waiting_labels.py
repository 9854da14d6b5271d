"""Waiting: what versions are to be called once they are ready, and who has a say in it meanwhile.

A push may ask that a label names its version, or that all calls go to it, as soon as it is ready.
Whoever sets that label or the route in the meantime was asked for later, so nobody waits for it any
more: a version that becomes ready never undoes what a person has decided since.
"""

from collections.abc import Callable
from dataclasses import replace

from serve.control.decisions import Decisions
from serve.control.storage.store import StoreEdit
from serve.control.versions import VERSION, PublishedVersion

GiveUp = Callable[[PublishedVersion], PublishedVersion]


def without_route(version: PublishedVersion) -> PublishedVersion:
    """It waits for all calls no more."""
    return replace(version, live=False)


def without_label(label: str) -> GiveUp:
    """It waits for this label no more."""

    def give_up(version: PublishedVersion) -> PublishedVersion:
        return replace(version, labels=tuple(one for one in version.labels if one != label))

    return give_up


def given_up(
    decisions: Decisions, model: str, give_up: GiveUp, author: str, reason: str
) -> list[StoreEdit]:
    """The changes of version records that go with it, each of the very record that was read."""
    found = []
    for version in decisions.versions.get(model, {}).values():
        after = give_up(version)
        if after != version:
            found.append(
                StoreEdit(VERSION, version.key, after.to_body(), author, reason, version.etag)
            )
    return found
