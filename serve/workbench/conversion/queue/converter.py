"""What the jobs need of a converter: the child process in production, a script in tests."""

from pathlib import Path
from typing import Protocol

from serve.workbench.conversion.events import OnEvent
from serve.workbench.conversion.report import ConversionReport
from serve.workbench.conversion.request import ConversionRequest


class Converter(Protocol):
    """Converts one source at a time into a folder, under the limits that the operator has set."""

    async def convert(
        self, request: ConversionRequest, base: Path, work: Path, on_event: OnEvent
    ) -> ConversionReport:
        """Convert and judge; what comes of it lies in `work`. Paths are relative to `base`.

        `ConversionFailed`, or `GateRefused` with the report in `work`. Cancelled, it leaves no
        process behind.
        """

    def write(self, work: Path, report: ConversionReport, *, name: str, out: Path) -> Path:
        """Write the model folder `out/name` that can be published; gives its path."""

    def render(self, report: ConversionReport) -> str:
        """The report as a page of HTML."""
