"""Who is asked for the GPUs of which replica.

1. Triton's own metrics, which somebody has read already: they say which GPUs are its own.
2. The dcgm-exporter beside it, where `gpu_metrics` names one: only it knows what a GPU really does.
3. NVML, for a Triton of this machine, when nobody has told how busy each of its GPUs is.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from serve.app.scrapes import scrape_gpus
from serve.core.replicas import Replica
from serve.settings import is_loopback
from serve.triton.gpus.nvml import Nvml
from serve.triton.gpus.readings import Gpu, among, merged, of_triton
from serve.triton.metrics import ReplicaScrape

_PATIENCE = 1.0  # seconds


class Gpus:
    """Asks. `exporter` gives the URL of a replica's dcgm-exporter, or an empty text.

    `patience`: seconds for NVML, which may have to wake a GPU that nobody uses.
    """

    def __init__(
        self,
        exporter: Callable[[Replica], str],
        *,
        nvml: Callable[[], Mapping[str, Gpu]] | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self._exporter = exporter
        self._nvml = nvml or Nvml().read
        self._patience = patience
        self._asked: asyncio.Future[Mapping[str, Gpu]] | None = None
        self._proven: dict[str, set[str]] = {}  # GPUs by replica that were busy, as Triton told

    def __repr__(self) -> str:
        return f"<Gpus proven={sum(len(one) for one in self._proven.values())}>"

    async def gpus_of(
        self, replica: Replica, readings: ReplicaScrape | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """By UUID what is known of each, as `Gpu` names it; empty where nobody tells anything."""
        told = self._as_triton_tells(replica, readings)
        sources, url = [told], self._exporter(replica)
        if url:
            sources.append(await scrape_gpus(url, pod=_pod_of(replica)))
        if is_loopback(replica.host) and not _is_enough(merged(sources)):
            sources.append(await self._of_this_machine())
        return {uuid: gpu.to_json() for uuid, gpu in among(merged(sources), set(told)).items()}

    def _as_triton_tells(
        self, replica: Replica, readings: ReplicaScrape | None
    ) -> Mapping[str, Gpu]:
        if readings is None:
            self._proven.pop(replica.name, None)  # it may come back on another GPU
            return {}
        busy = {uuid for uuid, one in readings.gpus.items() if (one.utilization or 0) > 0}
        proven = self._proven.setdefault(replica.name, set())
        proven |= busy
        return of_triton(readings.gpus, proven)

    async def _of_this_machine(self) -> Mapping[str, Gpu]:
        """One question at a time, for all who ask meanwhile: a sick GPU may never answer."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(asyncio.to_thread(self._nvml))
        done, _ = await asyncio.wait({self._asked}, timeout=self._patience)
        return self._asked.result() if done else {}


def _pod_of(replica: Replica) -> str:
    """Its pod, if it is one: whose name discovery takes, or a StatefulSet's in its host name."""
    try:
        ipaddress.ip_address(replica.host)
    except ValueError:
        return replica.host.partition(".")[0]
    return replica.name


def _is_enough(gpus: Mapping[str, Gpu]) -> bool:
    """Whether it is known of each how busy it is, or that this cannot be known."""
    return bool(gpus) and all(one.utilization is not None or one.mig for one in gpus.values())
