"""What a process does that writes to a store beside others."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from serve.control.storage.store import Store, StoreEdit
from serve.core.errors import PreconditionFailed

Where = Path | str


def write(talk: Connection, where: Where, me: str, work: str, rounds: int) -> None:
    """Say that it is ready, wait for a word, do one kind of work, and say what came of it."""
    store = Store(where, clock=lambda: 0.0)

    async def one(turn: int) -> int:
        if work == "generations":
            return await store.next_generation(0)
        if work == "chain":
            return await store.apply(StoreEdit("route", "m", [me, turn], me))
        try:
            return await store.apply(StoreEdit("route", f"m{turn}", me, me, if_match='"0"'))
        except PreconditionFailed:
            return 0

    async def main() -> None:
        await store.read()
        talk.send("ready")
        talk.recv()
        talk.send([await one(turn) for turn in range(rounds)])

    asyncio.run(main())


def migrate(talk: Connection, where: Where) -> None:
    """Bring a store up to date, after a word."""
    talk.send("ready")
    talk.recv()
    Store(where, clock=lambda: 0.0).migrate()
