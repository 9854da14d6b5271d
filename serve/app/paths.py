"""The state folder: every file that a process of ours keeps there."""

import os
from pathlib import Path

from serve.core.errors import CannotStart
from serve.settings import Settings

LOCK_FILE = "lock"
LEDGER_FILE = "children.json"
SNAPSHOT_FILE = "snapshot.json"
HINTS_FILE = "hints.json"
# Quarantine starts processes while gRPC calls run, which gRPC need not prepare for: they exec.
FORKS = ("GRPC_ENABLE_FORK_SUPPORT", "0")  # set before grpc is imported
STORE_FILE = "control.sqlite"
LEADER_FILE = "leader.lock"
SECRET_FILE = "secret"
GATEWAY_FILE = "gateway-id"
DELIVERY_FOLDER = "repository"  # published versions, as the local Tritons read them
STORAGE_FOLDER = "registry"  # published versions, by digest
UPLOADS_FOLDER = "uploads"
QUARANTINE_FOLDER = "quarantine"
BENCHES_FOLDER = "benches"  # the throw-away Tritons that are measured, and what is lent
CONVERSIONS_FOLDER = "conversions"  # where they work; nothing of it outlives them
_LONGEST_SOCKET = 107  # bytes; the kernel's limit for the path of a Unix socket


def store_place(settings: Settings) -> Path | str:
    """Where the store is: a file in the state folder, or a PostgreSQL URL."""
    return settings.database or settings.state_path / STORE_FILE


def worker_socket(settings: Settings, number: int) -> Path:
    """Where a worker answers its supervisor: metrics, and what it is made of."""
    return _socket(settings, f"worker-{number}.sock")


def control_socket(settings: Settings) -> Path:
    """Where the control plane answers the other processes of its machine."""
    return _socket(settings, "control.sock")


def _socket(settings: Settings, name: str) -> Path:
    path = settings.state_path / name
    if len(os.fsencode(path)) > _LONGEST_SOCKET:
        raise CannotStart(
            f"the path of the state folder {settings.state_path} is too long",
            why=f"the path of a Unix socket in it is limited to {_LONGEST_SOCKET} bytes",
            try_this="pass --state with a shorter path",
        )
    return path
