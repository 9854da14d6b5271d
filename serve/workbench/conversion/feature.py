"""The parts of a control plane that convert what is uploaded, put together."""

import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from serve.app.paths import CONVERSIONS_FOLDER
from serve.app.publication import Publishing
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.storage.store import Store
from serve.settings import Settings
from serve.workbench.conversion.entry import write_entry
from serve.workbench.conversion.events import OnEvent
from serve.workbench.conversion.queue.conversions import Conversions
from serve.workbench.conversion.queue.jobs import Jobs
from serve.workbench.conversion.queue.workshop import Workshop
from serve.workbench.conversion.report import ConversionReport
from serve.workbench.conversion.report_page import render_html
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.conversion.runner import ConversionLimits, convert


class ChildConverter:
    """Converts in a child process, under limits."""

    def __init__(self, limits: ConversionLimits) -> None:
        self._limits = limits

    def __repr__(self) -> str:
        return f"<ChildConverter {self._limits}>"

    async def convert(
        self, request: ConversionRequest, base: Path, work: Path, on_event: OnEvent
    ) -> ConversionReport:
        """See `Converter`."""
        return await convert(request, work, limits=self._limits, on_event=on_event, base=base)

    def write(self, work: Path, report: ConversionReport, *, name: str, out: Path) -> Path:
        """See `Converter`."""
        return write_entry(work, report, name=name, out=out)

    def render(self, report: ConversionReport) -> str:
        """See `Converter`."""
        return render_html(report)


def conversions_of(
    settings: Settings,
    publishing: Publishing,
    storage: ArtifactStorage,
    *,
    store: Store,
    decisions: Callable[[], Decisions],
    reload: Callable[[], Awaitable[None]],
) -> Conversions:
    """The conversions of one control plane; none are run where the settings say so."""
    jobs = Jobs(
        store,
        storage,
        decisions=decisions,
        reload=reload,
        wall=time.time,
        collecting=publishing.records.collecting,
    )
    converter = ChildConverter(
        ConversionLimits(settings.conversion_memory, settings.conversion_timeout)
    )
    workshop = Workshop(
        jobs,
        converter,
        storage=storage,
        uploads=publishing.uploads,
        versions=publishing.records,
        publications=publishing.publications,
        folder=settings.state_path / CONVERSIONS_FOLDER,
        slots=settings.conversions,
    )
    return Conversions(
        jobs,
        workshop,
        converter,
        uploads=publishing.uploads,
        slots=settings.conversions,
        new_id=partial(secrets.token_hex, 6),
    )
