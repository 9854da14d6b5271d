"""Watching hints: the gateway answers as soon as there is a newer round, and news are told."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import typer

from serve.cli.channel import Channel
from serve.cli.client import AdminClient, segment
from serve.cli.hints.view import Page, moment, number, reason
from serve.cli.talk import CommandTalk, JsonEvents


class News:
    """Which hints say something else than before. `pool` empty: all of them."""

    def __init__(self, pool: str = "") -> None:
        self._pool = pool
        self._told: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<News of {self._pool or 'all pools'}>"

    def of(self, pages: Iterable[Page]) -> Iterator[tuple[str, Page | None]]:
        """Each pool with news, and its hint; None where it has none any more."""
        now = {one["pool"]: one for one in pages if self._pool in ("", one["pool"])}
        for name in [name for name in self._told if name not in now]:
            del self._told[name]
            yield name, None
        for name, page in now.items():
            said = _said(page)
            if self._told.get(name) != said:
                self._told[name] = said
                yield name, page


class HintPoller:
    """Asks for newer rounds, one after the other, also after a restart of the control plane."""

    def __init__(self, admin: AdminClient, talk: CommandTalk, pool: str) -> None:
        self._admin = admin
        self._talk = talk
        self._pool = pool
        self._news = News(pool)

    def __repr__(self) -> str:
        return f"<HintPoller {self._news!r}>"

    async def until(self, seconds: float | None) -> None:
        """Tell news for so long, without end where it is None."""
        async with self._admin.asynchronous() as client:
            channel = Channel(client, self._talk)
            try:
                async with asyncio.timeout(seconds):
                    await self._watch(channel)
            except TimeoutError:
                return

    async def _watch(self, channel: Channel) -> None:
        if self._pool:
            await channel.ask("GET", f"/api/hints/{segment(self._pool)}")  # or there is none
        seen = 0
        while True:
            page: dict[str, Any] = await channel.ask("GET", f"/api/hints?after={seen}")
            try:
                seen = int(page["number"])
                for name, hint in self._news.of(page["hints"]):
                    self._tell(name, hint)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise channel.stranger(f"its response lacks {error}") from error

    def _tell(self, name: str, hint: Page | None) -> None:
        """News are data, so they go to stdout."""
        if not isinstance(self._talk, JsonEvents):
            typer.echo(line(hint) if hint else f"{name}  no longer has a hint")
        elif hint is None:
            self._talk.tell("gone", pool=name)
        else:
            self._talk.tell("hint", pool=name, hint=hint)


def line(page: Page) -> str:
    """One hint as a line of a log."""
    is_held = " (low confidence)" if page["confidence"] != "high" else ""
    starting = f", {page['starting']} starting" if page["starting"] else ""
    return (
        f"{moment(page['at'])}  {page['pool']}  {page['desired']} desired{is_held}, "
        f"{page['ready']} ready{starting}, demand {number(page['demand'])}: "
        f"{'; '.join(map(reason, page['reasons']))}"
    )


def _said(page: Page) -> object:
    """What is news when it differs; texts have numbers in them that differ all the time."""
    codes = tuple(one["code"] for one in page["reasons"])
    return page["desired"], page["ready"], page["starting"], page["confidence"], codes
