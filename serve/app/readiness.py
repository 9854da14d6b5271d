"""Readiness of `servegate up`: asks the admin API until there is nothing left to wait for."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import aiohttp

from serve.app.paths import control_socket
from serve.app.secret import shared_secret
from serve.core.errors import CannotStart
from serve.processes import Supervised
from serve.settings import Settings

_POLL = 0.05  # seconds between two looks at a control plane that starts


@dataclasses.dataclass(frozen=True, slots=True)
class ReadyModels:
    """What `up` serves once it is ready: the models as the admin API lists them."""

    settings: Settings
    models: list[dict[str, Any]]


async def until_ready(
    settings: Settings, control: Supervised, say: Callable[[str], None]
) -> ReadyModels:
    """Wait until no model is loading and every worker serves the newest snapshot."""
    told: dict[str, str] = {}
    async with _session(settings) as session:
        while True:
            if control.condition.restarts >= 3:
                raise CannotStart("the control plane does not start", why=control.condition.reason)
            try:
                models = await _get(session, "/api/models")
                everywhere = await _everywhere(session, models)
                snapshot = await _get(session, "/api/snapshot")  # last: it holds what they said
            except (aiohttp.ClientError, OSError, TimeoutError):
                await asyncio.sleep(_POLL)
                continue
            for model in models:
                if told.get(model["name"]) != (state := _sentence(model)):
                    told[model["name"]] = state
                    say(state)
            served = [worker["generation"] for worker in snapshot["workers"]]
            current = len(served) == settings.workers and min(served) >= snapshot["generation"] > 0
            if current and everywhere:
                return ReadyModels(settings, models)
            await asyncio.sleep(_POLL)


def _session(settings: Settings) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        "http://localhost",
        connector=aiohttp.UnixConnector(str(control_socket(settings))),
        headers={"authorization": f"Bearer {shared_secret(settings)}"},
        timeout=aiohttp.ClientTimeout(total=5),
    )


async def _everywhere(session: aiohttp.ClientSession, models: list[dict[str, Any]]) -> bool:
    """Whether calls go to every replica, which holds or has failed all that it should hold."""
    replicas = await _get(session, "/api/replicas?readings=false")
    if any(replica["state"] != "up" or replica["preparing"] for replica in replicas):
        return False
    for model in models:
        if model["state"] == "loading":
            return False
        ready = {v["version"] for v in model["versions"] if v["state"] == "ready"}
        for replica in replicas:
            held = set(replica["held"].get(model["name"], ()))
            belongs = replica["pool"] in model["pools"]
            if belongs and not ready <= held and model["name"] not in replica["failures"]:
                return False
    return True


async def _get(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as response:
        response.raise_for_status()
        return await response.json()


def _sentence(model: dict[str, Any]) -> str:
    ready = [str(v["version"]) for v in model["versions"] if v["state"] == "ready"]
    if model["state"] in ("ready", "partial"):
        word = "version" if len(ready) == 1 else "versions"
        return f"model {model['name']}: {word} {', '.join(ready)} ready"
    if model["state"] == "failed":
        return f"model {model['name']} cannot be served: {'; '.join(model['problems'])}"
    if model["state"] == "asleep":
        return f"model {model['name']}: asleep until its first call"
    return f"model {model['name']}: loading"
