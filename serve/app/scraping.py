"""A replica's own metrics, asked where it tells them."""

import logging

from serve.core.replicas import Replica
from serve.triton import metrics
from serve.triton.metrics import Readings

_log = logging.getLogger("servegate.admin")


async def scrape(replica: Replica) -> Readings | None:
    """What it says now; None when it does not tell within a second."""
    import aiohttp  # only needed once somebody asks

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session,
            session.get(replica.metrics_url) as response,
        ):
            text = await response.text()
            return metrics.read(text) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        _log.debug("no metrics from %s: %s", replica.name, error)
        return None
