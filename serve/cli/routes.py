"""`servegate route`: the traffic split of a model."""

import math
from typing import Annotated, Any

import typer

from serve.cli.client import connect, segment
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.core.errors import Invalid
from serve.core.routes import (
    LONGEST_DEADLINE,
    Mirror,
    RouteMatch,
    Split,
    check_sticky,
    sticky_text,
    weights_json,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Manage routes (how a model's traffic is split between its versions).\n\n"
    "Example: servegate route set digits 1=90 2=10",
    rich_markup_mode=None,
)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]


@app.command("show")
def show_route(
    name: Model, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """Show the traffic split of a model.

    Example: servegate route show digits
    """
    route = connect(admin_url, key_file).get(f"/api/routes/{segment(name)}")
    if json:
        as_json(route)
        return
    total = sum(route["split"].values())
    table(
        ("VERSION", "WEIGHT", "SHARE"),
        [
            (version, str(weight), f"{100 * weight / total:.4g} %")
            for version, weight in route["split"].items()
        ],
    )
    if route.get("sticky"):  # an older gateway has neither
        say(f"sticky: all calls with the same {sticky_text(route['sticky'])} go to one version")
    for match in route.get("matches", ()):
        say(f"match: {RouteMatch.from_json(match)}")
    if route.get("fallback"):
        say(f"fallback: version {route['fallback']}, while no replica has the chosen version")
    if route.get("deadline"):
        say(f"deadline: {route['deadline']:g} s for each predict call")
    if route.get("idempotent"):
        say("idempotent: a call that a replica has broken off is repeated on another replica, once")
    if mirror := route.get("mirror"):
        share = f"{mirror['percent']:g} % of the calls"
        kept = "; some calls that differ are kept as runs" if mirror.get("keep") else ""
        say(f"mirror: {share} are also sent to version {mirror['version']}{kept}")
    if not route["routed"]:
        say(
            "no route is set, so the newest version gets all traffic; set one with: "
            f"servegate route set {name} …"
        )


@app.command("set")
def set_route(
    name: Model,
    shares: Annotated[
        list[str],
        typer.Argument(
            metavar="VERSION=WEIGHT", help="Relative weight of each version, for example 1=90 2=10."
        ),
    ],
    sticky: Annotated[
        str | None,
        typer.Option(
            "--sticky",
            metavar="key|request-id|header:NAME|none",
            help="Keep all calls with the same API key, x-request-id or header value on one "
            "version (default: unchanged).",
        ),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            metavar="'header:NAME=VALUE|key:ID VERSION=WEIGHT…'",
            help="Give calls with this header value or API key a split of their own; * and ? match "
            "any characters (repeatable; the first match applies; 'none' removes all; default: "
            "unchanged).",
        ),
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(
            "--fallback",
            metavar="VERSION|none",
            help="Version for calls whose version no replica has loaded (default: unchanged).",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="SECONDS|none",
            help="Longest time for a predict call of the model (default: unchanged).",
        ),
    ] = None,
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--no-idempotent",
            help="Repeat a call on another replica, once, if the first replica breaks it off and "
            "may have executed it (default: unchanged).",
        ),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            "--mirror",
            metavar="VERSION=PERCENT|none",
            help="Also send so many percent of the calls to this version; callers never get its "
            "responses (default: unchanged).",
        ),
    ] = None,
    mirror_code: Annotated[
        bool,
        typer.Option(
            "--mirror-code",
            help="Allow --mirror for a version that runs code or calls other models.",
        ),
    ] = False,
    mirror_keep: Annotated[
        bool,
        typer.Option(
            "--mirror-keep",
            help="With --mirror: keep the inputs of up to 50 calls to which the versions respond "
            "differently, as runs.",
        ),
    ] = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Set the traffic split of a model.

    The command returns once every gateway worker uses the new split.

    Example: servegate route set digits 1=90 2=10 --sticky header:x-user-id

    Example: servegate route set digits 1=100 2=0 --match 'header:x-team=blue 2=100'
    """
    split = Split.parse(shares)
    body: dict[str, Any] = {"split": weights_json(split)}
    if sticky is not None:
        body["sticky"] = "" if sticky == "none" else sticky
        check_sticky(body["sticky"])
    if match:
        given = () if match == ["none"] else map(RouteMatch.parse, match)
        body["matches"] = [one.to_json() for one in given]
    if fallback is not None:
        body["fallback"] = _version(fallback)
    if deadline is not None:
        body["deadline"] = _seconds(deadline)
    if idempotent is not None:
        body["idempotent"] = idempotent
    if mirror is not None:
        body["mirror"] = (
            {}
            if mirror == "none"
            else Mirror.parse(mirror, code=mirror_code, keep=mirror_keep).to_json()
        )
    if (mirror in (None, "none")) and (mirror_code or mirror_keep):
        which = "--mirror-code" if mirror_code else "--mirror-keep"
        raise Invalid(f"{which} needs --mirror", try_this=f"--mirror 2=10 {which}")
    path = f"/api/routes/{segment(name)}"
    shown = f"{split}" if split.total == 100 else f"{split} ({split.percent})"
    tell_done(
        connect(admin_url, key_file, reason=reason).put(path, body),
        f"traffic split of {name}: {shown}",
    )


@app.command("mirror")
def show_mirror(
    name: Model, admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """Show what came of mirrored calls: whether the candidate responds, and predicts the same.

    The counts start when the data plane starts.

    Example: servegate route mirror digits
    """
    counts = connect(admin_url, key_file).get(f"/api/routes/{segment(name)}/mirror")
    if json:
        as_json(counts)
        return
    copies = ", ".join(f"{count} × {code}" for code, count in counts["copies"].items()) or "none"
    seconds = counts["seconds"]
    mean = "" if seconds is None else f"; mean time {seconds * 1000:.3g} ms"
    say(f"copies to version {counts['version']}: {copies}{mean}")
    for what, found in (("dropped", counts["dropped"]), ("not compared", counts["comparisons"])):
        others = {reason: count for reason, count in found.items() if reason != "compared"}
        if others:
            say(f"{what}: " + ", ".join(f"{count} × {why}" for why, count in others.items()))
    rows = []
    for output, one in counts["outputs"].items():
        total = one["agrees"] + one["differs"]
        share = f"{100 * one['differs'] / total:.3g} %" if total else "-"
        rows.append((output, str(one["agrees"]), str(one["differs"]), share))
    if rows:
        table(("OUTPUT", "ROWS AGREE", "ROWS DIFFER", "DIFFERING"), rows)
    else:
        say("no responses were compared yet")


def _version(text: str) -> int:
    if text == "none":
        return 0
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19):
        raise Invalid(f"--fallback cannot be '{text}'", try_this="--fallback 1, or --fallback none")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = 0.0 if text == "none" else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_DEADLINE or (not seconds and text != "none"):
        raise Invalid(
            f"--deadline cannot be '{text}'",
            why=f"expected a number of seconds above 0, up to {LONGEST_DEADLINE:g}",
            try_this="--deadline 0.5, or --deadline none",
        )
    return seconds
