"""`servegate hints set`: what is allowed of a pool."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from serve.cli.client import AdminClient, connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say
from serve.core.errors import Invalid

_USUAL: Mapping[str, Any] = {"settings": {}, "etag": '"0"', "set": False, "replicas": []}


def set_pool(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="A pool of replicas.")],
    least: Annotated[int | None, typer.Option(min=1, help="The fewest replicas.")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="The most replicas.")] = None,
    gpu_budget: Annotated[
        str | None,
        typer.Option(metavar="N", help="Replicas that there are GPUs for; '' is no limit."),
    ] = None,
    to_zero: Annotated[
        bool | None,
        typer.Option("--to-zero/--no-to-zero", help="Whether an idle pool may have none."),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Bounds at some hours: '[DAYS] FROM-TO [ZONE] least=N most=N'; repeat it for more,"
            " of which the first that holds counts. All are replaced; '' removes them.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Pools of one group hold each other's models; '' stands alone."),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(min=0.0, help="Of one replica per hour; the cheapest of a group comes first."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget all that was set.")] = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Set how many replicas a pool may have; hints stay within that.

    What is not named stays as it is.

    Example: servegate hints set default --least 1 --most 8 --gpu-budget 6

    Example: servegate hints set default --schedule 'mon-fri 08:00-18:00 Europe/Berlin least=4'

    Example: servegate hints set l4 --to-zero --group vision --cost 0.7
    """
    changes = {
        "least": least,
        "most": most,
        "budget": gpu_budget,
        "to_zero": to_zero,
        "schedules": schedule,
        "group": group,
        "cost": cost,
    }
    given = _given({name: value for name, value in changes.items() if value is not None})
    if clear == bool(given):
        raise Invalid(
            "everything is to be forgotten, and something set" if clear else "nothing is to be set",
            why="--clear stands alone" if clear else "no option says what",
            try_this=f"servegate hints set {pool} --least 1 --most 8, or --help",
        )
    admin = connect(admin_url, key_file, reason=reason)
    _send(admin, pool, None if clear else given)
    page = admin.get("/api/pools")
    found = next((one for one in page if one["pool"] == pool), None)
    if json:
        as_json(found)
    elif found is not None:
        _tell(found)


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    """What was said, as the admin API takes it."""
    from serve.control.scaling.schedules import Schedule

    if "budget" in changes:
        changes["budget"] = _budget(changes["budget"])
    if "schedules" in changes:
        texts: Sequence[str] = changes["schedules"]
        changes["schedules"] = [Schedule.parse(text).to_json() for text in texts if text.strip()]
    return changes


def _budget(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(
            f"'{text}' is no number of replicas", why="--gpu-budget N, or '' for no limit"
        )
    return int(text)


def _send(admin: AdminClient, pool: str, given: Mapping[str, Any] | None) -> None:
    """Change what is said of the pool as it is now; None forgets all."""
    path = f"/api/pools/{segment(pool)}"
    if given is None:
        tell_done(admin.delete(path), f"pool {pool} is as usual")
        return
    present = next((one for one in admin.get("/api/pools") if one["pool"] == pool), _USUAL)
    body = {**present["settings"], **given}
    if body == present["settings"] and present["set"]:
        say(f"pool {pool} is so already")
        return
    tell_done(admin.put(path, body, if_match=present["etag"]), f"pool {pool} is set")


def _tell(page: Mapping[str, Any]) -> None:
    """What holds now, for people."""
    bounds = page["bounds"]
    least = 0 if bounds["to_zero"] else bounds["least"]
    text = f"it may have {least} to {bounds['most']} replicas now"
    if bounds["budget"] is not None:
        text += f", with GPUs for {bounds['budget']}"
    say(text + (f", by '{bounds['schedule']}'" if bounds["schedule"] else ""))
    if len(page["beside"]) > 1:
        say(f"pools of its group: {', '.join(page['beside'])}")
    if not page["replicas"]:
        say(f"no replica is in pool {page['pool']}")
