"""`servegate hints set`: what is allowed of a pool."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from serve.cli.client import AdminClient, connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say
from serve.cli.panels import option
from serve.core.errors import Invalid

_USUAL: Mapping[str, Any] = {"settings": {}, "etag": '"0"', "set": False, "replicas": []}

_BOUNDS, _GROUP = "Bounds", "Groups of pools"  # groups in the help


def set_pool(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Pool to change.")],
    least: Annotated[
        int | None,
        option(_BOUNDS, "N", "Minimum number of replicas.", min=1),
    ] = None,
    most: Annotated[
        int | None,
        option(_BOUNDS, "N", "Maximum number of replicas.", min=1),
    ] = None,
    gpu_budget: Annotated[
        str | None,
        option(_BOUNDS, "N", "Maximum number of replicas with GPUs; '' removes the limit."),
    ] = None,
    to_zero: Annotated[
        bool | None,
        option(_BOUNDS, "", "Allow an idle pool to scale to zero.", "--to-zero/--no-to-zero"),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        option(
            _BOUNDS,
            "TEXT",
            "Bounds for a time of day: '[DAYS] FROM-TO [ZONE] least=N most=N' (repeatable). The "
            "given schedules replace all existing ones; '' removes all schedules. If several "
            "apply, the first one wins.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        option(
            _GROUP,
            "NAME",
            "Group of pools that load the same models; '' removes the pool from its group.",
        ),
    ] = None,
    cost: Annotated[
        float | None,
        option(
            _GROUP,
            "NUMBER",
            "Cost of one replica per hour, in any unit. Demand is assigned to the pool with the "
            "lowest cost per call first.",
            min=0.0,
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Reset the pool to the defaults.")] = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Set the bounds of a pool.

    The scaling hint stays within these bounds. Omitted settings do not change.

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
            "--clear cannot be combined with other settings"
            if clear
            else "no setting was specified",
            try_this=f"servegate hints set {pool} --least 1 --most 8, or --help for all options",
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
            f"--gpu-budget cannot be '{text}'",
            why="expected a number of replicas, or '' for no limit",
        )
    return int(text)


def _send(admin: AdminClient, pool: str, given: Mapping[str, Any] | None) -> None:
    """Change what is said of the pool as it is now; None forgets all."""
    path = f"/api/pools/{segment(pool)}"
    if given is None:
        tell_done(admin.delete(path), f"reset pool {pool} to the defaults")
        return
    present = next((one for one in admin.get("/api/pools") if one["pool"] == pool), _USUAL)
    body = {**present["settings"], **given}
    if body == present["settings"] and present["set"]:
        say(f"pool {pool} already has these settings")
        return
    tell_done(admin.put(path, body, if_match=present["etag"]), f"updated pool {pool}")


def _tell(page: Mapping[str, Any]) -> None:
    """What holds now, for people."""
    bounds = page["bounds"]
    least = 0 if bounds["to_zero"] else bounds["least"]
    text = f"bounds now: {least} to {bounds['most']} replicas"
    if bounds["budget"] is not None:
        text += f", GPUs for {bounds['budget']}"
    say(text + (f" (schedule '{bounds['schedule']}')" if bounds["schedule"] else ""))
    if len(page["beside"]) > 1:
        say(f"pools of the group: {', '.join(page['beside'])}")
    if not page["replicas"]:
        say(f"pool {page['pool']} has no replicas")
