"""Runs a gRPC sender in a process of its own, see `grpc_driver.py`, and reads what it tells."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from serve.workbench.loadtest.bodies import path_of
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload

DRIVER = Path(__file__).with_name("grpc_driver.py")
UNARY, STREAM = LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM


def drive(
    protocol: LaneProtocol,
    address: str,
    *rounds: int,
    payloads: tuple[Payload, ...] = (Payload(b"\x0a\x01m"),),
    most: int = 100,
    timeout: float = 20.0,
    trusted: str = "",
    **lane: Any,
) -> list[tuple[str, str]]:
    """Outcome and decision of each call, in the order of their starts."""
    made = Lane("lane", protocol, address, path_of(protocol, "m", ""), payloads, **lane)
    asked = {"lane": made.to_json(), "rounds": rounds, "most": most, "timeout": timeout}
    environment = os.environ | ({"SERVEGATE_CACERT": trusted} if trusted else {})
    ran = subprocess.run(
        [sys.executable, DRIVER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    return [(outcome, decision) for outcome, decision in json.loads(ran.stdout)]
