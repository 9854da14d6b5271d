"""`servegate batching set`: change how a version is run, without a failed call."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from serve.cli.batching.edits import Edits
from serve.cli.batching.options import with_edits
from serve.cli.client import AdminClient, connect
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.talk import CommandTalk
from serve.cli.versions import Which
from serve.core.errors import Invalid

WITHIN = 1800.0  # seconds for everything but the watch


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """What is to be changed, before anybody was asked: `lines` are what differs."""

    path: str
    page: Mapping[str, Any]  # as it is now
    fields: Mapping[str, Any]
    lines: list[str]


@with_edits
def set_configuration(
    which: Which,
    edits: Edits,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the diff and the lint findings without changing anything."
        ),
    ] = False,
    watch: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Roll the change back if the model misses its objective within this time, for "
            "example 60s (default: do not watch).",
        ),
    ] = "",
    if_match: Annotated[
        str,
        typer.Option(
            "--if-match",
            metavar="ETAG",
            help="Apply the change only if the configuration has this ETag (default: the ETag "
            "that this command reads).",
        ),
    ] = "",
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Change a version's serving configuration (batching, queues, instances, …).

    Shows the diff and the lint findings, tests the change on a temporary Triton, rolls it out one
    replica at a time, and prints the command that reverts it. The model's files do not change.
    Exits with status 7 if the change is refused or rolled back.

    Example: servegate batching set digits --max-batch-size 16 --delay 500us

    Example: servegate batching set digits@3 --instances cpu:2 --watch 60s --reason 'two cores'

    Example: servegate batching set digits --queue size=200,timeout=50ms,action=reject --dry-run
    """
    from serve.cli.endings import report_end
    from serve.cli.talk import talk

    talking = talk(json=json)
    with report_end(
        talking, lambda: f"stopped; the change continues: servegate batching show {which}"
    ):
        seconds = _seconds(watch)
        admin = connect(admin_url, key_file, reason=reason)
        change = planned(admin, which, edits)
        talking.tell("difference", fields=change.fields, lines=change.lines)
        if not json:
            _show(change)
        if change.lines and change.page["shared_with"]:
            talking.tell("note", f"the change also applies to {_others(change.page)}")
        if not change.lines:
            talking.tell("note", "no differences")
            talking.tell("result", ok=True, exit=0, changed=False)
            return
        page = asyncio.run(_apply(admin, talking, change, seconds, dry_run, if_match))
        if dry_run:
            talking.tell("note", "dry run: nothing was changed")
        else:
            talking.tell("note", f"{_done(page)}. To revert: {way_back(change.page, which)}")
        findings = list(page["findings"])
        talking.tell("result", ok=True, exit=0, changed=not dry_run, findings=findings)


def planned(admin: AdminClient, which: str, edits: Edits) -> ConfigurationChange:
    """What these edits would change of a version; `Invalid` when they cannot be, or are none."""
    from serve.cli.asked import parse_asked
    from serve.cli.batching.difference import difference
    from serve.cli.batching.edits import edited
    from serve.cli.versions import called_number, path_of
    from serve.triton.config import parse
    from serve.triton.config_revisions import revised

    if edits.is_empty:
        raise Invalid(
            "no change was specified",
            try_this=f"servegate batching set {which} --delay 500us, or --help for all options",
        )
    asked = parse_asked(which)
    path = f"{path_of(asked.model, called_number(admin, asked))}/serving-configuration"
    page = admin.get(path)
    base, present = parse(page["base"]), parse(page["config"])
    fields = edited(base, present, edits)
    return ConfigurationChange(path, page, fields, difference(present, revised(base, fields)))


async def checked(
    admin: AdminClient, talking: CommandTalk, change: ConfigurationChange
) -> Mapping[str, Any]:
    """What the gateway says of it, without changing anything; `CheckFailed` when it refuses."""
    from serve.cli.batching.rollout_progress import send
    from serve.cli.channel import Channel

    async with admin.asynchronous() as client:
        path = f"{change.path}?dry_run=true"
        return await send(Channel(client, talking), path, {"fields": change.fields}, if_match="")


async def _apply(
    admin: AdminClient,
    talking: CommandTalk,
    change: ConfigurationChange,
    watch: float | None,
    dry_run: bool,
    if_match: str,
) -> Mapping[str, Any]:
    from serve.cli.batching.difference import say_findings
    from serve.cli.batching.rollout_progress import ConfigurationFollower, send
    from serve.cli.channel import Channel

    page = await checked(admin, talking, change)
    talking.tell("findings", findings=list(page["findings"]))
    say_findings(page["findings"])
    if dry_run:
        return page
    query = {"wait": "false"} | ({} if watch is None else {"watch": f"{watch:g}"})
    async with admin.asynchronous() as client:
        channel = Channel(client, talking)
        path = f"{change.path}?{urlencode(query)}"
        etag = if_match or str(change.page["etag"])
        await send(channel, path, {"fields": change.fields}, if_match=etag)
        following = ConfigurationFollower(channel, talking, change.path)
        return await following.until_over(WITHIN + (watch or 0.0))


def way_back(before: Mapping[str, Any], which: str) -> str:
    """The command that brings back what was so before."""
    number = str(before["etag"]).strip('"')
    if number.isdigit() and int(number):
        return f"servegate history restore {number}"
    return f"servegate batching set {which} --reset"


def _done(page: Mapping[str, Any]) -> str:
    """Where it is so now."""
    count, version = len(page["replicas"]), f"{page['model']}@{page['version']}"
    return f"applied to {version} on {count} replica{'' if count == 1 else 's'}"


def _others(page: Mapping[str, Any]) -> str:
    """The versions that share their configuration with this one."""
    numbers = ", ".join(map(str, page["shared_with"]))
    return f"version{'' if len(page['shared_with']) == 1 else 's'} {numbers}"


def _seconds(watch: str) -> float | None:
    from serve.triton.edits.values import microseconds

    return microseconds(watch, "--watch") / 1_000_000 if watch else None


def _show(change: ConfigurationChange) -> None:
    from serve.cli.batching.difference import print_difference

    print_difference(change.lines)
