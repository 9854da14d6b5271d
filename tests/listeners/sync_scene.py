"""Parts of the admin API for our own processes, without the rest of a control plane."""

from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, FastAPI

from serve.control.delivering.agents import AgentDelivery
from serve.listeners.admin.application import create
from serve.listeners.admin.sync import Blobs, sync_router

SECRET = "the-shared-secret"


def internal_api(agents: AgentDelivery, blobs: Blobs) -> FastAPI:
    """What agents talk to."""
    return beside_app(sync_router(agents, blobs))


def beside_app(*routers: APIRouter) -> FastAPI:
    """The admin application; of its control plane hardly more than the secret is needed."""
    control: Any = SimpleNamespace(secret=SECRET, leads=lambda: True)
    return create(control, hosts=["localhost"], beside=routers)
