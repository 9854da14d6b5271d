"""API keys: a hundred in the gateway's table, and one that every call of a benchmark presents.

Every target gets the same requests, so nginx, haproxy, Envoy and Triton are shown the key as well.
"""

import asyncio
import time
from pathlib import Path

from serve.app.paths import STORE_FILE
from serve.control.decisions import KEY
from serve.control.storage.store import Store, StoreEdit
from serve.core.access import ApiKey, Role, digest_of

COUNT = 100
_ID, _SECRET = "benchmark", "of-a-gateway-that-listens-on-loopback-only-00"
CREDENTIAL = ("authorization", f"Bearer sg_{_ID}_{_SECRET}")


def write_keys(state: Path) -> None:
    """Put the keys into the store of a control plane that has not been started yet."""
    state.mkdir(parents=True, exist_ok=True)
    others = [ApiKey.create(Role.PREDICTOR, ("null", "echo"))[0] for _ in range(COUNT - 1)]
    presented = ApiKey(_ID, digest_of(_SECRET.encode()), Role.PREDICTOR)
    store = Store(state / STORE_FILE, clock=time.time)
    store.migrate()
    asyncio.run(_write(store, [*others, presented]))
    store.close()


async def _write(store: Store, keys: list[ApiKey]) -> None:
    for key in keys:
        body = {
            "digest": key.digest,
            "role": key.role.value,
            "models": list(key.models),
            "expires": None,
            "created": time.time(),
            "author": "benchmark",
            "note": "",
        }
        await store.apply(StoreEdit(KEY, key.id, body, "benchmark"))
