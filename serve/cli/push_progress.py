"""Following a version from its commit until every replica of its pool serves it.

| the record says   | and the model says                       | then                        |
|-------------------|------------------------------------------|-----------------------------|
| uploaded, checked |                                          | wait                        |
| failed            |                                          | an error with every finding |
| retired, removed  |                                          | an error                    |
| published         | asleep: its pool was scaled to zero      | done                        |
| published         | some replicas of the pool lack it        | wait                        |
| published         | failed or not wanted, several times      | an error                    |
| published         | a label or the route still waits for it  | wait                        |
| published         | ready on all replicas that are up        | done                        |
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.cli.channel import Channel
from serve.cli.client import segment
from serve.cli.talk import CommandTalk
from serve.core.errors import (
    CheckFailed,
    Conflict,
    DeadlineExceeded,
    LoadFailed,
    ServegateError,
    TrialFailed,
)
from serve.core.versions import VersionState

_LOOKS = 4  # in a row that must say that it does not move: a load may be tried again
_OURS = "an error in Servegate"
ASLEEP = "asleep"
_GONE = (VersionState.RETIRED, VersionState.REMOVED)
_CALLABLE = (VersionState.READY, VersionState.SERVING)
_MOVING = (
    VersionState.UPLOADED,
    VersionState.CHECKED,
    VersionState.PUBLISHED,
    VersionState.LOADING,
    VersionState.READY,
)


@dataclass(frozen=True, slots=True)
class VersionProgress:
    """How far a version has come. `replicas` of `wanted` serve it; `why` says what it waits for."""

    state: str
    replicas: int = 0
    wanted: int = 0
    why: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to wait for."""
        if self.state == ASLEEP:
            return True
        return (
            self.state == VersionState.READY and self.replicas >= self.wanted > 0 and not self.why
        )

    def __str__(self) -> str:
        """For people: `loading (1 of 2 replicas): why`."""
        text = self.state
        if self.wanted:
            text += f" ({self.replicas} of {self.wanted} replicas)"
        return text + (f": {self.why}" if self.why else "")


def standing(
    record: Mapping[str, Any],
    model: Mapping[str, Any] | None,
    replicas: Sequence[Mapping[str, Any]],
) -> VersionProgress:
    """What record, model (None: not there yet) and replicas together say; errors for a dead end."""
    recorded, number, reason = record["recorded"], record["version"], record["reason"]
    if recorded == VersionState.FAILED:
        raise failure(record)
    if recorded in _GONE:
        raise Conflict(f"version {number} of model '{record['model']}' is {recorded}", why=reason)
    if recorded != VersionState.PUBLISHED or model is None:
        return VersionProgress(recorded, why=reason)
    if record["state"] == ASLEEP:
        return VersionProgress(ASLEEP, why=_pending(record))
    pool = model["pool"]
    pools = model.get("pools", [pool])  # an older control plane knows no groups
    alive = {one["name"] for one in replicas if one["pool"] in pools and one["state"] == "up"}
    holding = len(alive.intersection(record["replicas"]))
    if record["state"] not in (VersionState.LOADING, *_CALLABLE):  # failed, or not wanted
        return VersionProgress(record["state"], holding, len(alive), reason)
    if not alive:
        return VersionProgress(VersionState.LOADING, why=f"no replica of pool '{pool}' is up")
    if holding < len(alive):
        return VersionProgress(VersionState.LOADING, holding, len(alive), reason)
    return VersionProgress(VersionState.READY, holding, len(alive), _pending(record))


def failure(record: Mapping[str, Any]) -> ServegateError:
    """Why a version was not published: a check, or the trial in quarantine."""
    what = f"version {record['version']} of model '{record['model']}' was not published"
    reason = record["reason"]
    if reason.startswith(_OURS):
        return ServegateError(what, why=reason)
    if "checked" in record["times"]:
        return TrialFailed(what, why=reason)
    return CheckFailed(what, record["findings"] or [reason])


def conclusion(model: Mapping[str, Any], number: int, replicas: int) -> str:
    """What serves now, and what can be done next. Without replicas its pool sleeps."""
    name = model["name"]
    if not replicas:
        return f"version {number} is published; its pool has no replicas until the first call"
    count = f"{replicas} replica" + ("s" if replicas != 1 else "")
    text = f"version {number} is ready on {count}"
    labels = [label for label, version in model["labels"].items() if version == number]
    if labels:
        points = "points" if len(labels) == 1 else "point"
        text += f", and {', '.join(f'{name}:{label}' for label in labels)} {points} to it"
    split = {int(version): weight for version, weight in model["split"].items() if weight}
    if list(split) == [number]:
        return f"{text}; it receives all traffic"
    if number in split:
        return (
            f"{text}; it receives {100 * split[number] / sum(split.values()):.3g} % of the traffic"
        )
    others = ", ".join(str(version) for version in sorted(split))
    still = f"version {others} still receives the traffic" if others else "it receives no traffic"
    return f"{text}; {still}. Try: servegate route set {name} {number}=100"


def _pending(record: Mapping[str, Any]) -> str:
    """What waits for the version to be ready; the record's reason tells why it still does."""
    waiting = [f"label '{label}'" for label in record["labels"]]
    if record["live"]:
        waiting.append("the route")
    if not waiting:
        return ""
    reason = f": {record['reason']}" if record["reason"] else ""
    return f"{' and '.join(waiting)} not set yet{reason}"


class VersionFollower:
    """Looks at one version again and again, every `pause` seconds."""

    def __init__(
        self, channel: Channel, talk: CommandTalk, *, model: str, number: int, pause: float = 0.5
    ) -> None:
        self._channel = channel
        self._talk = talk
        self._model = model
        self._number = number
        self._pause = pause
        self._told: VersionProgress | None = None

    def __repr__(self) -> str:
        return f"<VersionFollower {self._model}@{self._number}: {self._told}>"

    async def until_ready(self, within: float) -> tuple[VersionProgress, Mapping[str, Any]]:
        """Where it stands in the end, and the model.

        `CheckFailed`, `TrialFailed`, `LoadFailed` when it comes to nothing; `DeadlineExceeded`
        after `within` seconds: the publication goes on all the same.
        """
        try:
            async with asyncio.timeout(within):
                return await self._follow()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"version {self._number} was not ready within {within:.3g} s",
                why=str(self._told or "the gateway reported no progress"),
                try_this=f"servegate model show {self._model}@{self._number}; publishing continues",
            ) from error

    async def _follow(self) -> tuple[VersionProgress, Mapping[str, Any]]:
        stuck = 0
        while True:
            now, model = await self.look()
            self._tell(now)
            stuck = 0 if now.state in _MOVING else stuck + 1
            if stuck >= _LOOKS:
                raise LoadFailed(self._model, now.why or f"it is {now.state}")
            if now.is_done:
                return now, model
            await asyncio.sleep(self._pause)

    async def look(self) -> tuple[VersionProgress, Mapping[str, Any]]:
        """Where it stands now, and the model; the model is empty before it is published."""
        path = f"/api/models/{segment(self._model)}"
        record = await self._channel.ask("GET", f"{path}/versions/{self._number}")
        try:
            if record["recorded"] != VersionState.PUBLISHED:
                return standing(record, None, ()), {}
            model = await self._channel.ask("GET", path)
            replicas = await self._channel.ask("GET", "/api/replicas")
            return standing(record, model, replicas), model
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._channel.stranger(f"its response lacks {error}") from error

    def _tell(self, now: VersionProgress) -> None:
        if now == self._told:
            return
        self._told = now
        self._talk.tell(
            "state",
            f"version {self._number}: {now}",
            version=self._number,
            state=now.state,
            replicas=now.replicas,
            wanted=now.wanted,
            why=now.why,
        )
