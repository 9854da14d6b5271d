"""The result of a conversion: the files of a version, where they come from, and what is told.

What people read names no folder of this machine: paths are those of the upload, and the command of
a report can be typed where the source lies.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from serve.control.conversions.job import Job
from serve.control.conversions.progress import plain
from serve.control.publication.publications import PublicationRequest
from serve.conversion.events import failure_facts
from serve.conversion.faults import failed
from serve.conversion.report import ConversionReport
from serve.core.errors import ConversionFailed, Invalid, ServegateError
from serve.core.versions import CONVERSION, CONVERSION_PAGE, VersionFile

_LARGEST = 16 << 20  # bytes of a report
_MOST_TOOLS, _LONGEST = 50, 200
_HINTS = {  # where the catalogue's are for who converts on their own machine
    "out_of_memory": "use a larger --conversion-memory of servegate up, or a larger machine",
    "timed_out": "use a larger --conversion-timeout of servegate up",
    "converter_missing": "pip install '.[convert]' in a checkout on the control plane's machine",
    "ambiguous_signature": "choose one with `signature` in the request",
    "numbers_differ": "use larger `tolerances` in the request if you accept larger errors",
    "metric_dropped": "use another precision, more samples, or a larger `max_drop` in the request",
    "interrupted": "run servegate convert retry ID",
}


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """A model folder that can be published: each of its files, and where that lies."""

    TAG: ClassVar[str] = "conversion"  # names the job that has made a version

    report: ConversionReport
    files: tuple[tuple[VersionFile, Path], ...]

    @classmethod
    def of(cls, report: ConversionReport, folder: Path) -> "ConversionResult":
        """Read and hash the files of a folder, which takes a while."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = tuple((_file(path, folder), path) for path in paths)
        return cls(report, files)

    def ask(self, job: Job) -> PublicationRequest:
        """What is wanted of its version, and where that comes from."""
        versions = list(self.report.versions.items())[:_MOST_TOOLS]
        kind = str(self.report.source.get("kind", "source"))
        return PublicationRequest(
            labels=job.asked.labels,
            live=job.asked.live,
            again=job.asked.again,
            source=f"{kind} {self.report.request.source}, converted by job {job.id}",
            tools=MappingProxyType({k[:_LONGEST]: v[:_LONGEST] for k, v in versions}),
            tags=MappingProxyType({self.TAG: job.id}),
        )


class Hiding:
    """Takes the path of the folder in which a job works out of texts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"<Hiding {self._folder}>"

    def text(self, text: str) -> str:
        """A text in which paths begin below the folder, or below that of its source."""
        for folder in (self._folder / "given", self._folder):
            text = text.replace(f"{folder}/", "")
        return text

    def event(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """An event, or a fault, with such texts."""
        return {k: self.text(v) if isinstance(v, str) else v for k, v in facts.items()}

    def rewrite(self, entry: Path) -> None:
        """The same for the reports in a model folder."""
        for path in (entry / CONVERSION, entry / CONVERSION_PAGE):
            if path.is_file():
                path.write_text(self.text(path.read_text()))

    def report_in(self, folder: Path) -> ConversionReport | None:
        """The report in a folder, with such texts; None when there is none that can be read."""
        try:
            with (folder / CONVERSION).open("rb") as file:
                text = file.read(_LARGEST).decode()
            return ConversionReport.from_json(json.loads(self.text(text)))
        except (OSError, ValueError, RecursionError, Invalid):
            return None


def fault_of(error: Exception) -> dict[str, str]:
    """Why there is no version, with the fields of a `failed` event."""
    if isinstance(error, ConversionFailed):
        facts = failure_facts(error)
    elif isinstance(error, ServegateError):
        names = ("code", "what", "why", "try_this")
        facts = {name: getattr(error, name) for name in names}
    elif isinstance(error, OSError):
        facts = failure_facts(failed("converter_crashed", error.strerror or str(error)))
    else:
        why = "an error in Servegate; see its log"
        facts = failure_facts(failed("converter_crashed", why))
    facts["try_this"] = _HINTS.get(facts["code"], facts["try_this"])
    return {name: plain(text) for name, text in facts.items() if text}


def _file(path: Path, folder: Path) -> VersionFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return VersionFile(path.relative_to(folder).as_posix(), path.stat().st_size, digest)
