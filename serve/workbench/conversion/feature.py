"""Conversions of uploaded sources as a feature of a control plane."""

import secrets
import time
from functools import partial
from pathlib import Path

from serve.admin.api.features import FeatureWeb
from serve.app.features import Feature, Plane
from serve.app.paths import CONVERSIONS_FOLDER
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


def build(plane: Plane) -> Feature:
    """The conversions of uploaded sources; none are run where the settings say so."""
    settings, publishing = plane.settings, plane.publishing
    jobs = Jobs(
        plane.store,
        plane.storage,
        decisions=plane.decisions,
        reload=plane.reload,
        wall=time.time,
        collecting=publishing.records.collecting,
    )
    converter = ChildConverter(
        ConversionLimits(settings.conversion_memory, settings.conversion_timeout)
    )
    workshop = Workshop(
        jobs,
        converter,
        storage=plane.storage,
        uploads=publishing.uploads,
        versions=publishing.records,
        publications=publishing.publications,
        folder=settings.state_path / CONVERSIONS_FOLDER,
        slots=settings.conversions,
    )
    conversions = Conversions(
        jobs,
        workshop,
        converter,
        uploads=publishing.uploads,
        slots=settings.conversions,
        new_id=partial(secrets.token_hex, 6),
    )
    return Feature(
        services={Conversions: conversions},
        web=web,
        run=conversions.run if settings.publishes else None,
    )


def web() -> FeatureWeb:
    """The routers."""
    from serve.workbench.conversion import api

    return FeatureWeb(name="conversion", api=(api.reports,), publishing=(api.router,))
