"""What becomes of a call that is over: a line of the access log, a span, both, or nothing."""

import importlib
import importlib.util
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from serve.app.access_log import AccessLog
from serve.app.access_log_file import LogFile
from serve.core.errors import CannotStart
from serve.proxy.journal import EndedCall, Journal
from serve.settings import Settings

if TYPE_CHECKING:
    from serve.app.spans import Spans

_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


@dataclass(frozen=True, slots=True)
class Journals:
    """What the settings ask for; `journal` is what the gateway writes to."""

    log: AccessLog | None = None
    spans: "Spans | None" = None

    @classmethod
    def of(cls, settings: Settings, *, instance: str, draw: Callable[[], float]) -> "Journals":
        """Those of one worker, whose name is `instance`."""
        log = None
        if settings.access_log:
            path = None if settings.access_log == "-" else Path(settings.access_log).absolute()
            log = AccessLog(
                LogFile(path),
                share=settings.access_log_share,
                draw=draw,
                clock=time.monotonic,
                wall=time.time,
            )
        return cls(log, _spans(settings, instance) if settings.otel else None)

    @property
    def journal(self) -> Journal | None:
        """One that is all of them."""
        if self.log is not None and self.spans is not None:
            return LogAndSpans(self.log, self.spans)
        return self.log or self.spans

    def close(self) -> None:
        """Write down and send what is left."""
        if self.log is not None:
            self.log.close()
        if self.spans is not None:
            self.spans.close()


def preload(settings: Settings) -> None:
    """Import what `Journals.of` will: before the fork, so that workers share it."""
    if settings.otel:
        for name in (_EXPORTER, "serve.app.spans"):
            importlib.import_module(name)


def require_otel(
    settings: Settings, *, find: Callable[[str], object] = importlib.util.find_spec
) -> None:
    """`CannotStart` when spans are wanted and cannot be sent. `find` tells without an import."""
    if not settings.otel:
        return
    try:
        is_there = find(_EXPORTER) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise CannotStart(
            "'otel' is set, but OpenTelemetry is not installed",
            try_this="run pip install '.[otel]' in a checkout of Servegate",
        )
    if urlsplit(settings.otel).scheme not in ("http", "https"):
        raise CannotStart(
            f"'{settings.otel}' is not a valid OTLP endpoint",
            why="expected an HTTP or HTTPS URL",
            try_this="set 'otel' to a URL such as http://localhost:4318",
        )


def _spans(settings: Settings, instance: str) -> "Spans":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from serve.app.spans import Spans

    # It would say so at every batch while the collector is away.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    url = settings.otel.rstrip("/")
    exporter = OTLPSpanExporter(endpoint=url if urlsplit(url).path else f"{url}/v1/traces")
    return Spans(BatchSpanProcessor(exporter), instance=instance, wall=time.time)


class LogAndSpans:
    """Both at once. Every call becomes a span, and the access log takes its share of the same."""

    def __init__(self, log: AccessLog, spans: "Spans") -> None:
        self._log = log
        self._spans = spans

    def takes(self) -> bool:
        """See `Spans`."""
        return True

    def write(self, ended: EndedCall) -> None:
        """A span, and perhaps a line."""
        for one in (self._spans, self._log):
            if not ended.good or one.takes():
                one.write(ended)
