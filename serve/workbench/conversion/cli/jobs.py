"""`servegate convert ls`, `show`, `cancel` and `retry`: conversions that a gateway runs."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.client import AdminClient, connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.core.errors import Conflict, ServegateError

if TYPE_CHECKING:
    from serve.cli.stages import OnEvent
    from serve.cli.talk import CommandTalk

Identity = Annotated[str, typer.Argument(metavar="ID", help="ID from `servegate convert ls`.")]
_PATH = "/api/conversions"


def list_jobs(admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False) -> None:
    """List the conversions on the gateway, newest first.

    Example: servegate convert ls
    """
    found = connect(admin_url, key_file).get(_PATH)
    if json:
        as_json(found)
        return
    table(
        ("ID", "MODEL", "STATE", "VERSION", "AUTHOR", "CREATED", "WHY"),
        [
            (
                job["id"],
                job["model"],
                _state(job),
                str(job["version"] or ""),
                job["author"],
                _second(job["created"]),
                job["fault"]["what"] if job["fault"] else "",
            )
            for job in found
        ],
    )


def show_job(
    identity: Identity,
    follow: Annotated[
        bool, typer.Option("--follow", help="Follow the progress until the conversion finishes.")
    ] = False,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show a conversion and its progress.

    With --follow, the exit status is 7 if the converted model failed verification, and 1 if the
    conversion itself failed.

    Example: servegate convert show 3f9c01ab27d4 --follow
    """
    admin = connect(admin_url, key_file)
    if follow:
        _follow(admin, identity, json=json)
        return
    page = admin.get(_path(identity))
    if json:
        as_json(page)
        return
    for line in _lines(page, admin.url):
        print(line)


def cancel_job(
    identity: Identity,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Cancel a queued or running conversion.

    Example: servegate convert cancel 3f9c01ab27d4
    """
    _change(connect(admin_url, key_file, reason=reason), identity, "cancel", json=json)


def retry_job(
    identity: Identity,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Retry a conversion that failed, was refused by verification, or was cancelled.

    Example: servegate convert retry 3f9c01ab27d4
    """
    _change(connect(admin_url, key_file, reason=reason), identity, "retry", json=json)


def _change(admin: AdminClient, identity: str, verb: str, *, json: bool) -> None:
    page = admin.post(f"{_path(identity)}/{verb}", None)
    if json:
        as_json(page)
    say(f"conversion {identity} of {page['model']} is {page['state']}")


def _path(identity: str) -> str:
    return f"{_PATH}/{segment(identity)}"


# --- following -----------------------------------------------------------------------------------


def _follow(admin: AdminClient, identity: str, *, json: bool) -> None:
    """Tell until it has ended; the error that it ended with is raised."""
    from serve.cli.endings import report_end
    from serve.cli.talk import talk

    talking = talk(json=json)
    with report_end(talking, lambda: f"stopped following; conversion {identity} continues"):
        page = asyncio.run(_ended(admin, identity, talking))
        if page["state"] != "done":
            raise _error_of(page)
        text = f"version {page['version']} of {page['model']} is published"
        talking.tell("note", text)
        talking.tell("result", ok=True, exit=0, model=page["model"], version=page["version"])


async def _ended(admin: AdminClient, identity: str, talking: "CommandTalk") -> Mapping[str, Any]:
    """The job once it has ended; what it tells meanwhile is told."""
    from serve.cli.channel import Channel
    from serve.cli.stages import stages

    async with admin.asynchronous() as client:
        channel, after = Channel(client, talking), 0
        with stages(talking) as tell:
            while True:
                page: Mapping[str, Any] = await channel.ask("GET", _path(identity))
                if page["state"] in ("done", "failed", "refused", "cancelled"):
                    _tell(tell, page["events"], after)
                    return page
                news = await channel.ask("GET", f"{_path(identity)}/events?after={after}")
                if news is not None:
                    _tell(tell, news["events"], 0)
                    after = news["after"]


def _tell(tell: "OnEvent", events: list[dict[str, Any]], after: int) -> None:
    for event in events:
        if event["number"] > after:
            tell({**event, "text": _told(event)})


def _error_of(page: Mapping[str, Any]) -> ServegateError:
    """Why there is no version."""
    from serve.workbench.conversion.events import failure_of

    if page["fault"]:
        return failure_of(page["fault"])
    return Conflict(
        f"conversion {page['id']} is {page['state']}",
        try_this=f"servegate convert retry {page['id']}",
    )


# --- for people ----------------------------------------------------------------------------------


def _lines(page: Mapping[str, Any], url: str) -> Iterator[str]:
    """One conversion."""
    version = f", version {page['version']}" if page["version"] else ""
    yield f"{page['id']}: {_state(page)}, model {page['model']}{version}"
    fault = page["fault"] or {}
    facts = {
        "request": _asked(page["request"]),
        "by": f"{page['author']}, {_second(page['created'])}",
        "labels": " ".join(page["labels"]),
        "error": fault.get("what"),
        "why": fault.get("why"),
        "operator": " ".join(filter(None, (fault.get("operator"), fault.get("node")))),
        "try": fault.get("try_this"),
        "code": fault.get("code"),
        "report": f"{url}{_path(page['id'])}/report.html" if page["has_report"] else "",
    }
    yield from (f"  {name}: {text}" for name, text in facts.items() if text)
    events = page["events"]
    told = (event for event in events if event["type"] != "share" or event is events[-1])
    yield from (f"  {_second(event['at'])}  {_told(event)}" for event in told)


def _state(page: Mapping[str, Any]) -> str:
    return f"{page['state']} ({page['stage']})" if page["stage"] else str(page["state"])


def _asked(request: Mapping[str, Any]) -> str:
    """What somebody has set."""
    names = ("signature", "precision", "samples", "labelled", "max_batch_size", "accept_unverified")
    return " ".join(f"{name}={request[name]}" for name in names if request.get(name))


def _told(event: Mapping[str, Any]) -> str:
    """An event as a sentence."""
    if event["type"] == "share":
        from serve.workbench.conversion.events import STAGES

        stage = str(event.get("stage", ""))
        return f"{STAGES.get(stage, stage)}: {event.get('done', 0)} of {event.get('total', 0)}"
    text = event.get("text") or event.get("what") or event.get("stage") or event["type"]
    state = event.get("state", "")
    return f"{state}: {event['what']}" if state and event.get("what") else state or str(text)


def _second(at: str | float) -> str:
    """A time, RFC 3339 or seconds of the epoch, cut to seconds: `2030-01-31 12:00:07Z`."""
    from datetime import UTC, datetime

    if isinstance(at, str):
        return f"{at[:10]} {at[11:19]}Z"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"
