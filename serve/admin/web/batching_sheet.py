"""The form of the page *Batching* on its way: as somebody typed it, and with what came of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Response

from serve.admin.api.configurations import ConfigurationDiff, LineView
from serve.admin.api.serving_configurations import (
    FindingView,
    ServingConfigurationView,
    show_serving_configuration,
)
from serve.admin.web import batching_form
from serve.admin.web.batching_form import CALLED, Typed
from serve.admin.web.page_templates import Visit
from serve.admin.web.versions import folded
from serve.control.configurations import compared
from serve.core.errors import CheckFailed, ServegateError
from serve.triton.canonical import canonical_text
from serve.triton.config import parse
from serve.triton.config_revisions import revised

_LONGEST = 1000  # characters of a reason


@dataclass(frozen=True, slots=True)
class FormResult:
    """What came of a form. `lines` are what would differ, None where that was not asked.

    `is_stale`: nothing was done, as somebody has changed it since; `is_news`: nothing was asked.
    """

    trouble: ServegateError | None = None
    lines: Sequence[Any] | None = None
    findings: Sequence[FindingView] = ()
    is_stale: bool = False
    is_news: bool = False

    @property
    def wrong(self) -> Sequence[str]:
        """What a check found, a sentence each."""
        return self.trouble.findings if isinstance(self.trouble, CheckFailed) else ()


@dataclass(frozen=True, slots=True)
class Sheet:
    """The form as it is filled in. `shown` is what its fields say of the configuration now."""

    typed: Typed
    shown: Typed
    etag: str
    reason: str = ""
    watch: str = ""
    answer: FormResult = field(default_factory=FormResult)

    @property
    def seen(self) -> str:
        """What comes back with it, so that it is known which fields were touched."""
        return json.dumps(self.shown)

    @property
    def touched(self) -> frozenset[str]:
        """The fields that differ from what is so now."""
        return frozenset(name for name in CALLED if self.typed[name] != self.shown[name])


async def asked(visit: Visit, model: str, number: int) -> tuple[ServingConfigurationView, Sheet]:
    """How a version is run now, and over it what somebody typed; `etag` is what they had seen."""
    served = await show_serving_configuration(model, number, visit.control, Response())
    form = await visit.request.form()
    now = batching_form.shown(parse(served.config))
    typed, seen = batching_form.typed_of(form), batching_form.seen_of(form, now)
    etag = str(form.get("if_match", "")) or served.etag
    reason, watch = (str(form.get(name, ""))[:_LONGEST] for name in ("reason", "watch"))
    return served, Sheet(batching_form.merged(typed, seen, now), now, etag, reason, watch)


def wanted(served: ServingConfigurationView, sheet: Sheet) -> dict[str, Any]:
    """The fields to send; `Invalid` for what cannot be."""
    base, present = parse(served.base), parse(served.config)
    return batching_form.wanted(base, present, sheet.typed, sheet.shown)


def config_with(served: ServingConfigurationView, fields: Mapping[str, Any]) -> str:
    """The text of config.pbtxt with these fields instead of those that are changed now."""
    return canonical_text(revised(parse(served.base), fields))


def difference(old: str, new: str) -> Sequence[Any]:
    """The lines that differ, with some around them; none when none does."""
    lines = [
        LineView(sign=line.sign, text=line.text, old=line.old, new=line.new)
        for line in compared(old, new)
    ]
    if all(line.sign == " " for line in lines):
        return []
    return folded(ConfigurationDiff(model="", old=0, new=0, same=False, lines=lines))
