"""Metrics that are asked where they are told: a replica's own, and those of a dcgm-exporter."""

import logging
from collections.abc import Mapping

from serve.core.replicas import Replica
from serve.triton import metrics
from serve.triton.gpus import dcgm
from serve.triton.gpus.readings import Gpu
from serve.triton.metrics import ReplicaScrape

_log = logging.getLogger("servegate.admin")


async def scrape(replica: Replica, *, only_queues: bool = False) -> ReplicaScrape | None:
    """What it says now, see `metrics.read`; None when it does not tell within a second."""
    text = await _text(replica.metrics_url)
    try:
        return None if text is None else metrics.read(text, only_queues=only_queues)
    except ValueError as error:
        _log.debug("no metrics from %s: %s", replica.name, error)
        return None


async def scrape_gpus(url: str, *, pod: str = "") -> Mapping[str, Gpu]:
    """What a dcgm-exporter says now, of a pod's GPUs if it knows any; none when it does not."""
    text = await _text(url)
    try:
        return {} if text is None else dcgm.read(text, pod=pod)
    except ValueError as error:
        _log.debug("no GPU metrics from %s: %s", url, error)
        return {}


async def _text(url: str) -> str | None:
    import aiohttp  # only needed once somebody asks

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session,
            session.get(url) as response,
        ):
            text = await response.text()
            return text if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        _log.debug("no metrics from %s: %s", url, error)
        return None
