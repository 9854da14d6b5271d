"""Pages: Jinja templates around values, escaped by themselves, under a strict policy.

Nothing on a page may come from elsewhere, run inline, or be framed. So a hostile name of a model,
a label or a picture is a text like any other.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.datastructures import URL

from serve import __version__
from serve.admin.api.context import AdminContext, ByWhom, InControl, caller
from serve.admin.api.features import MenuEntry
from serve.admin.web import static_files
from serve.core.access import ApiKey
from serve.core.commands import addressed
from serve.core.texts import printable

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "frame-src 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_CALLS = ("servegate load ", "servegate infer ")  # commands that call the data ports
_MENU = (
    MenuEntry("/", "Models", "", ("/models/", "/traffic/")),
    MenuEntry("/try", "Try", "/", ("/runs",)),
    MenuEntry("/live", "Live", "/try"),
    MenuEntry("/upload", "Upload", "/live"),
    MenuEntry("/reference", "API", "/upload"),
)
_HERE = ("localhost", "127.0.0.1", "::1")


def _shown(value: Any) -> Any:
    """What a template writes: markup as it is, texts without control characters."""
    return printable(value) if type(value) is str else value


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody looks at a page, or does something there. `key` is None where none is needed."""

    request: Request
    control: AdminContext
    by: Any  # serve.control.models.By
    key: ApiKey | None

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def menu(self) -> Sequence[MenuEntry]:
        """The pages of the menu, in order."""
        entries = list(_MENU)
        for one in (each for feature in self.control.features for each in feature.menu):
            paths = [each.path for each in entries]
            entries.insert(paths.index(one.after) + 1, one)
        return entries

    def is_in(self, entry: MenuEntry) -> bool:
        """Whether the visitor is on this page, or on one below it."""
        here = self.request.url.path
        below = entry.also if entry.path == "/" else (f"{entry.path}/", *entry.also)
        return here == entry.path or here.startswith(below)

    def has(self, feature: str) -> bool:
        """Whether this feature of the workbench is there."""
        return any(one.name == feature for one in self.control.features)

    @property
    def needs_key(self) -> bool:
        """Whether somebody has logged in to be here."""
        return self.control.needs_key(self.control.models.decisions.guarded)


def _visit(
    request: Request,
    control: InControl,
    by: ByWhom,
    key: Annotated[ApiKey | None, Depends(caller)],
) -> Visit:
    return Visit(request, control, by, key)


Visiting = Annotated[Visit, Depends(_visit)]


def page(
    visit: Visit | None,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> Response:
    """A page, or a part of one, of a template in `templates/`. None: nobody has logged in."""
    text = environment().get_template(template).render(visit=visit, **values)
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})


def go(path: str, visit: Visit | None = None) -> Response:
    """Send the browser to another page, whichever way it asked."""
    if visit is not None and visit.is_fragment:
        return Response(status_code=204, headers={**HEADERS, "hx-redirect": path})
    return Response(status_code=303, headers={**HEADERS, "location": path})


def add_templates(packages: Iterable[str]) -> None:
    """Find templates in the folder `templates` of these packages, too."""
    loader = environment().loader
    assert isinstance(loader, ChoiceLoader)
    known = [each for each in loader.loaders if isinstance(each, PackageLoader)]
    names = {each.package_name for each in known}
    loader.loaders = [*known, *(PackageLoader(one) for one in packages if one not in names)]


@cache
def environment() -> Environment:
    """Where templates come from, and what they may use."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader("serve.admin.web")]),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(static=static_files.url, product_version=__version__)
    made.filters.update(
        advice=advice_text,
        command=command_text,
        bytes=bytes_text,
        number=number_text,
        percent=percent_text,
        seconds=seconds_text,
        ago=ago_text,
        moment=moment_text,
        segment=segment,
    )
    return made


@pass_context
def command_text(context: Context, command: str) -> Markup:
    """A command with every address that it needs where this page is read; other texts as is."""
    if not command.startswith("servegate "):
        return escape(command)
    visit: Visit = context["visit"]
    http, grpc, metrics = visit.control.data_urls
    if not command.startswith(_CALLS):
        http = grpc = metrics = ""
    seen = visit.request.base_url
    data = {"http": http, "grpc": grpc, "metrics": metrics}
    urls = {name: _from_there(url, seen) for name, url in data.items()}
    return _unbroken(command + addressed("", **urls, admin=str(seen)))


def _unbroken(command: str) -> Markup:
    """With no line break after a hyphen, where a reader would assume a space."""
    option = Markup('<span class="nowrap">{}</span>')
    words = command.split(" ")
    return Markup(" ").join(option.format(one) if one.startswith("--") else one for one in words)


@pass_context
def advice_text(context: Context, text: str) -> Markup:
    """What to try after an error: a command or an option as code, a sentence as it is."""
    if text.startswith("servegate ") and context["visit"] is not None:
        return Markup("<code>{}</code>").format(command_text(context, printable(text)))
    if text.startswith(("servegate ", "GET ", "POST ", "/", "-")):
        return Markup("<code>{}</code>").format(printable(text))
    return escape(printable(text))


def _from_there(url: str, seen: URL) -> str:
    """A data port of this machine, by the host name under which the page was asked for."""
    parts = urlsplit(url)
    if parts.hostname not in _HERE or seen.hostname in (*_HERE, None):
        return url
    name = f"[{seen.hostname}]" if ":" in seen.hostname else seen.hostname
    return f"{parts.scheme}://{name}:{parts.port}"


def segment(name: object) -> str:
    """A name as one segment of a path."""
    return quote(str(name), safe="")


def bytes_text(count: float | None) -> str:
    """1.2 MB; — for what is not known."""
    if count is None:
        return "—"
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def number_text(value: float | None) -> str:
    """1,234 or 0.0123; — for what is not known."""
    if value is None:
        return "—"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def percent_text(share: float | None, digits: int = 1) -> str:
    """97.3 % of a share between 0 and 1; — for what is not known."""
    return "—" if share is None else f"{share * 100:.{digits}f} %"


def seconds_text(seconds: float | None) -> str:
    """1.2 ms; — for what is not known."""
    if seconds is None:
        return "—"
    for factor, unit in ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")):
        if abs(seconds) < factor * 999.5 or unit == "s":  # which is rounded to 1000
            return f"{seconds / factor:.3g} {unit}"
    return ""


def ago_text(at: float | None, now: float | None = None) -> str:
    """5 min ago; `at` is in seconds of the epoch."""
    if at is None:
        return "—"
    passed = max((time.time() if now is None else now) - at, 0.0)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= length:
            return f"{int(passed // length)} {unit} ago"
    return "just now" if passed < 10 else f"{int(passed)} s ago"


def moment_text(at: float | None) -> str:
    """2026-11-22 10:15:00 UTC; `at` is in seconds of the epoch."""
    return "—" if at is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
