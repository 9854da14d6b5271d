"""Sending a changed configuration, and following it to the last replica."""

import asyncio
from collections.abc import Mapping
from typing import Any

from serve.cli.batching.difference import refused
from serve.cli.channel import Away, Channel
from serve.cli.client import error_of
from serve.cli.talk import CommandTalk
from serve.core.errors import (
    CheckFailed,
    Conflict,
    DeadlineExceeded,
    OutcomeUnknown,
    ServegateError,
)

Page = Mapping[str, Any]
_PHASES = {
    "trying": "trying the configuration on a temporary Triton",
    "measuring": "measuring calls before the change",
    "applying": "applying the configuration to one replica after the other",
    "watching": "comparing calls with those before the change",
    "taking back": "rolling the change back",
}
_BEFORE = ("trying", "measuring")  # replicas run what they ran
_REFUSED = {"refused": "refused", "taken back": "rolled back"}


async def send(
    channel: Channel, path: str, body: Mapping[str, Any], *, if_match: str
) -> Mapping[str, Any]:
    """One PUT, never repeated: what the gateway answers, or its refusal as an error."""
    headers = {"if-match": if_match} if if_match else {}
    try:
        answer = await channel.once("PUT", path, json=body, headers=headers)
    except Away as away:
        if not away.was_sent:
            raise away.error from away
        raise OutcomeUnknown(
            "the change may or may not have been made", why=str(away.error)
        ) from away
    if not answer.is_success:
        raise refused(error_of(answer))
    page: Mapping[str, Any] = answer.json()
    return page


class ConfigurationFollower:
    """Looks at a serving configuration every `pause` seconds, and tells what is new."""

    def __init__(
        self, channel: Channel, talk: CommandTalk, path: str, *, pause: float = 0.5
    ) -> None:
        self._channel = channel
        self._talk = talk
        self._path = path
        self._pause = pause
        self._phase = ""
        self._replicas: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<ConfigurationFollower {self._path}: {self._phase or 'nothing seen yet'}>"

    async def until_over(self, within: float) -> Page:
        """The configuration once the change has ended well.

        `CheckFailed` when it was refused or taken back, `Conflict` when somebody changed it again,
        `DeadlineExceeded` after `within` seconds: it goes on all the same.
        """
        try:
            async with asyncio.timeout(within):
                return await self._follow()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the change was not finished within {within:.3g} s",
                why=f"it is still {_PHASES.get(self._phase, self._phase)}" if self._phase else "",
                try_this="servegate batching show; the change continues",
            ) from error

    async def _follow(self) -> Page:
        while True:
            page: Page = await self._channel.ask("GET", self._path)
            self._tell(page)
            if is_over(page):
                return page
            await asyncio.sleep(self._pause)

    def _tell(self, page: Page) -> None:
        phase = str((page["change"] or {}).get("phase", ""))
        if phase != self._phase and phase in _PHASES:
            self._talk.tell("phase", _PHASES[phase], phase=phase)
        self._phase = phase
        if phase in _BEFORE:
            return
        for name, one in sorted(page["replicas"].items()):
            told = f"{one['state']}: {one['why']}" if one["why"] else one["state"]
            if self._replicas.get(name) != told:
                self._replicas[name] = told
                self._talk.tell("replica", f"replica {name}: {told}", replica=name, **one)


def is_over(page: Page) -> bool:
    """Whether a change has come to pass; raises when it has come to nothing.

    Without a change (the control plane was started again) the replicas say how far it is.
    """
    change = page["change"]
    if change is None:
        failed = [one for one in page["replicas"].values() if one["state"] == "failed"]
        if failed:
            raise CheckFailed("a replica could not apply the change", [str(failed[0]["why"])])
        return all(one["state"] == "applied" for one in page["replicas"].values())
    outcome, told = change["outcome"], str(change["told"])
    if outcome in _REFUSED:
        raise CheckFailed(f"the change was {_REFUSED[outcome]}", [told])
    if outcome == "replaced":
        raise Conflict("another change replaced this one", why=told)
    if outcome == "failed":
        raise ServegateError("the change failed", why=told)
    return bool(outcome)
