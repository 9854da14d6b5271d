"""A fake cluster and the real kubectl, both on one event loop, which runs while a test waits.

cluster = Cluster(home)
said = cluster.kubectl("apply", "-k", "k8s/base")
cluster.api.objects("Deployment")
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fake_kubernetes import FakeApi

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def well(self) -> "Said":
        assert self.code == 0, self.err or self.out
        return self


class Cluster:
    """It has a namespace `servegate` from the start, unless it `is_bare`."""

    def __init__(self, home: Path, *, is_bare: bool = False) -> None:
        self.api = FakeApi()
        self._environment = environment(home)
        self._runner = asyncio.Runner()
        if not is_bare:
            self.api.put(named("v1", "Namespace", "servegate", namespace=""))

    def __enter__(self) -> Self:
        self.run(self.api.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.run(self.api.__aexit__())
        self._runner.close()

    def run(self, waiting: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(waiting)

    def kubectl(self, *words: str, given: object = None) -> Said:
        """`given`: objects (one, or a list of them), which kubectl reads with `-f -`."""
        return self.run(self._kubectl(words, given))

    def apply(self, *objects: object) -> Said:
        return self.kubectl("apply", "-f", "-", given=list(objects))

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        """Start a kubectl that goes on until it is killed."""
        return await asyncio.create_subprocess_exec(
            "kubectl",
            f"--server={self.api.url}",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            cwd=ROOT,
        )

    async def _kubectl(self, words: tuple[str, ...], given: object) -> Said:
        process = await self.start(*words)
        out, err = await process.communicate(_stream(given))
        return Said(process.returncode or 0, out.decode(), err.decode())


def kubectl(home: Path, *words: str) -> Said:
    done = subprocess.run(
        ["kubectl", *words], cwd=ROOT, env=environment(home), capture_output=True, text=True
    )
    return Said(done.returncode, done.stdout, done.stderr)


def environment(home: Path) -> dict[str, str]:
    """No configuration and no cache but its own."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": os.devnull}


def named(
    api_version: str, kind: str, name: str, *, namespace: str = "servegate", **more: Any
) -> dict[str, Any]:
    within = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **within}, **more}


def _stream(given: object) -> bytes:
    """One JSON object behind the other, which kubectl reads, too."""
    objects = given if isinstance(given, list) else [given] if given is not None else []
    return "\n".join(json.dumps(each) for each in objects).encode()
