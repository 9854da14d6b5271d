"""`servegate export` and `apply`: the routes of all models in one file."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.client import connect
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, KeyFile, Reason
from serve.cli.output import say
from serve.core.errors import Invalid
from serve.core.routes import Route

_UNSET = '"0"'  # the ETag of a route that is not set
_FIELDS = tuple(field.name for field in dataclasses.fields(Route))


def export(admin_url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Print the routes of all models as YAML, for `servegate apply`.

    Example: servegate export > routes.yaml
    """
    import yaml

    present = connect(admin_url, key_file).get("/api/routes")
    routes = {one["model"]: _plain(Route.from_json(one)) for one in present}
    yaml.safe_dump({"routes": routes}, sys.stdout, sort_keys=False, default_flow_style=False)


def apply(
    file: Annotated[
        Path, typer.Option("-f", "--file", metavar="FILE", help="YAML file with routes.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show and check the changes, but do not make them."),
    ] = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Set the routes that a file contains, all at once.

    The command prints each difference first. Models that the file does not contain keep their
    routes. If a version is not ready, or another user changes one of the routes in the meantime, no
    route is changed.

    Example: servegate apply -f routes.yaml --dry-run
    """
    from serve.control.history import differences

    wanted = read_routes(file)
    client = connect(admin_url, key_file, reason=reason)
    present = {one["model"]: one for one in client.get("/api/routes")}
    changed: dict[str, Any] = {}
    for model, route in wanted.items():
        before = present.get(model)
        old = _plain(Route.from_json(before)) if before else {}
        found = differences(old, _plain(route))
        for one in found:
            print(f"{model}: {one}")
        if found:
            changed[model] = route.to_json() | {"etag": before["etag"] if before else _UNSET}
    if not changed:
        say("the routes are already as in the file")
        return
    done = client.put(f"/api/routes?dry_run={str(dry_run).lower()}", {"routes": changed})
    names = ", ".join(changed)
    if dry_run:
        say(f"dry run: the routes of {names} can be changed; nothing was changed")
    else:
        tell_done(done, f"routes of {names}")


def read_routes(file: Path) -> Mapping[str, Route]:
    """The routes in a file; `Invalid` says what is wrong, and where."""
    import yaml

    try:
        page = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the file '{file}' cannot be read", why=str(error)) from error
    except yaml.YAMLError as error:
        raise Invalid(f"'{file}' is not valid YAML", why=" ".join(str(error).split())) from error
    routes = page.get("routes") if isinstance(page, dict) else None
    if not isinstance(routes, dict) or page.keys() != {"routes"}:
        raise Invalid(
            f"'{file}' does not contain routes",
            why="it needs exactly one key, 'routes', with a route for each model",
            try_this="see the form in the output of servegate export",
        )
    return {str(model): _route(str(model), given, file) for model, given in routes.items()}


def _route(model: str, given: Any, file: Path) -> Route:
    where = f"the route of model '{model}' in '{file}' is not valid"
    if not isinstance(given, dict) or "split" not in given:
        raise Invalid(where, why="it has no 'split'", try_this="split: {1: 90, 2: 10}")
    if unknown := [str(name) for name in given if name not in _FIELDS]:
        raise Invalid(where, why=f"unknown: {', '.join(unknown)}", try_this=", ".join(_FIELDS))
    try:
        return Route.from_json(given)
    except Invalid as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        raise Invalid(where, why=why, try_this=error.try_this) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(where, why=f"it is malformed ({error})") from error


def _plain(route: Route) -> dict[str, Any]:
    """A route as people write it: versions are numbers."""
    page = route.to_json()
    for one in (page, *page.get("matches", ())):
        one["split"] = {int(version): weight for version, weight in one["split"].items()}
    return page
