"""`servegate model show NAME@V`, `diff`, `pull`, `rm`, `restore` and `gc`: published versions."""

import asyncio
import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.asked import ModelReference, parse_asked
from serve.cli.backup import Yes, require_yes
from serve.cli.client import AdminClient, connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.core.errors import Conflict, Invalid, NotFound, UnknownLabel, UnknownVersion
from serve.core.versions import VersionFile

Which = Annotated[
    str, typer.Argument(metavar="NAME[@V|:label]", help="Version, by number or label.")
]
Exactly = Annotated[str, typer.Argument(metavar="NAME@V", help="Version, by number.")]


def show_version(admin: AdminClient, asked: ModelReference, *, json: bool) -> None:
    """One version: where it comes from, what it is, and how far it has come."""
    number = number_of(admin, asked)
    try:
        page = version_page(admin, asked.model, number)
    except NotFound:
        page = _plain(admin, asked.model, number)
    if json:
        as_json(page)
        return
    for line in _lines(page):
        print(line)
    if page.get("files"):
        table(
            ("FILE", "BYTES", "SHA256"),
            [(file["path"], str(file["size"]), file["sha256"][:12]) for file in page["files"]],
        )


def show_diff(
    one: Which,
    other: Which,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Compare the files and configurations of two versions.

    Example: servegate model diff digits@1 digits@2
    """
    admin = connect(admin_url, key_file)
    pages = []
    for text in (one, other):
        asked = parse_asked(text)
        pages.append(version_page(admin, asked.model, number_of(admin, asked)))
    files = compare_files(*pages)
    before, after = (page["config"].splitlines() for page in pages)
    config = list(difflib.unified_diff(before, after, one, other, lineterm=""))
    if json:
        as_json({"files": files, "config": config})
        return
    table(
        ("FILE", "CHANGE", one, other),
        [(row["path"], row["change"], _size(row["one"]), _size(row["other"])) for row in files],
    )
    print("\n".join(config) if config else "the configurations are identical")


def pull(
    which: Which,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Model folder to write (default: ./NAME)."),
    ] = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Download the files of a version into a model folder.

    Example: servegate model pull digits@3 --out copies/digits
    """
    from serve.cli.endings import report_end
    from serve.cli.pull import Pulling
    from serve.cli.talk import amount, talk

    channel = talk(json=json)
    with report_end(
        channel, lambda: "stopped; run the same command again to fetch the missing files"
    ):
        asked = parse_asked(which)
        admin = connect(admin_url, key_file)
        number = number_of(admin, asked)
        files = _files(version_page(admin, asked.model, number))
        folder = out or Path(asked.model)
        pulling = Pulling(admin, channel, path=path_of(asked.model, number), folder=folder)
        lacking = pulling.lacking(files)
        asyncio.run(pulling.run(lacking))
        size = amount(sum(file.size for file in lacking))
        text = f"version {number} of {asked.model}: {len(files)} files, downloaded {size}"
        channel.tell("note", text)
        channel.tell("result", ok=True, exit=0, version=number, folder=str(folder))
    if not json:
        print(folder)


def remove(
    which: Exactly,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete its files, so that it cannot be restored.")
    ] = False,
    yes: Yes = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Retire a version, and unload it from all replicas. `model restore` publishes it again.

    A failed version is removed permanently.

    Example: servegate model rm digits@2
    """
    asked, number = _exactly(which)
    if purge and not yes:
        require_yes(f"this permanently deletes the files of version {number} of {asked.model}")
    admin = connect(admin_url, key_file, reason=reason)
    page = admin.delete(path_of(asked.model, number) + ("?purge=true" if purge else ""))
    say(f"version {number} of {asked.model} is {page['state']}")


def restore(
    which: Exactly,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Publish a retired version again. Labels and routes do not change.

    Example: servegate model restore digits@2
    """
    asked, number = _exactly(which)
    admin = connect(admin_url, key_file, reason=reason)
    page = admin.post(path_of(asked.model, number) + "/restore", {})
    say(f"version {number} of {asked.model} is {page['state']}")


def collect_garbage(
    keep: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of newest versions to keep per model (default: the setting "
            "keep_versions).",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be removed, without removing anything."),
    ] = False,
    yes: Yes = False,
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Remove old retired or failed versions, and unused files.

    Example: servegate model gc --keep 5 --dry-run
    """
    from serve.cli.talk import amount

    admin = connect(admin_url, key_file, reason=reason)
    body = {} if keep is None else {"keep": keep}
    if not (dry_run or yes):
        going = admin.post("/api/gc", body | {"dry_run": True})
        if going["items"]:
            require_yes(
                f"this removes {len(going['items'])} items, {amount(going['bytes'])}; see --dry-run"
            )
    found = admin.post("/api/gc", body | {"dry_run": dry_run})
    if json:
        as_json(found)
    else:
        table(
            ("KIND", "NAME", "BYTES", "WHY"),
            [
                (each["kind"], each["name"], str(each["size"]), each["why"])
                for each in found["items"]
            ],
        )
    say(f"{'would free' if dry_run else 'freed'} {amount(found['bytes'])}")


def number_of(admin: AdminClient, asked: ModelReference) -> int:
    """The version that is meant: by number, by label, or else the newest."""
    if asked.selector.isdecimal():
        return int(asked.selector)
    model = admin.get(f"/api/models/{segment(asked.model)}")
    if asked.selector:
        if asked.selector not in model["labels"]:
            raise UnknownLabel(asked.model, asked.selector, model["labels"])
        return int(model["labels"][asked.selector])
    numbers = [int(version["version"]) for version in model["versions"]]
    if not numbers:
        raise UnknownVersion(asked.model, "1")
    return max(numbers)


def called_number(admin: AdminClient, asked: ModelReference) -> int:
    """The version that is meant: by number, by label, or else the one that gets most calls."""
    if asked.selector:
        return number_of(admin, asked)
    model = admin.get(f"/api/models/{segment(asked.model)}")
    split = {int(version): int(share) for version, share in model.get("split", {}).items()}
    if not any(split.values()):
        return number_of(admin, asked)
    return max(split, key=lambda version: (split[version], version))


def version_page(admin: AdminClient, model: str, number: int) -> dict[str, Any]:
    """What the gateway tells of a version that was pushed."""
    page: dict[str, Any] = admin.get(path_of(model, number))
    return page


def path_of(model: str, number: int) -> str:
    """Where a version is in the admin API."""
    return f"/api/models/{segment(model)}/versions/{number}"


def compare_files(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each file that differs; `*` stands for the version's own number."""
    mine, yours = _by_path(one), _by_path(other)
    rows = []
    for path in sorted(mine.keys() | yours.keys()):
        a, b = mine.get(path), yours.get(path)
        if a != b:
            change = "removed" if b is None else "added" if a is None else "changed"
            rows.append({"path": path, "change": change, "one": a, "other": b})
    return rows


def _by_path(page: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    prefix = f"{page['version']}/"
    return {
        ("*/" + file["path"].removeprefix(prefix))
        if file["path"].startswith(prefix)
        else file["path"]: {"size": file["size"], "sha256": file["sha256"]}
        for file in page["files"]
    }


def _size(file: Mapping[str, Any] | None) -> str:
    return "" if file is None else f"{file['size']} {file['sha256'][:12]}"


def _files(page: Mapping[str, Any]) -> tuple[VersionFile, ...]:
    """The files of a version; `Conflict` when there are none to fetch."""
    if not page["files"]:
        raise Conflict(
            f"version {page['version']} of model '{page['model']}' has no files to download",
            why=f"it is {page['state']}",
        )
    return tuple(VersionFile(file["path"], file["size"], file["sha256"]) for file in page["files"])


def _exactly(which: str) -> tuple[ModelReference, int]:
    """A version by its number: what is changed for good is not named by a label that may move."""
    asked = parse_asked(which)
    if not asked.selector.isdecimal():
        raise Invalid(f"'{which}' has no version number", try_this=f"{asked.model}@1")
    return asked, int(asked.selector)


def _plain(admin: AdminClient, model: str, number: int) -> dict[str, Any]:
    """A version of the gateway's own model repository, of which there is no record."""
    page = admin.get(f"/api/models/{segment(model)}")
    for version in page["versions"]:
        if version["version"] == number:
            origin = {"author": "", "source": "the gateway's model repository"}
            return {**version, "model": model, "named_by": version["labels"], "provenance": origin}
    raise UnknownVersion(model, str(number))


def holders_of(replicas: Sequence[str], flavours: Mapping[str, str]) -> str:
    """The replicas that hold a version, and in which form where it has several."""
    forms = ((name, flavours.get(name, "")) for name in replicas)
    return " ".join(f"{name}({form})" if form else name for name, form in forms)


def _lines(page: Mapping[str, Any]) -> Iterator[str]:
    """A version for people."""
    from serve.cli.talk import amount

    holders = holders_of(page["replicas"], page.get("flavour_of", {}))
    replicas = f" on {holders}" if holders else ""
    yield f"{page['model']}@{page['version']}: {page['state']}{replicas}"
    origin = page["provenance"]
    at = origin.get("at")
    when = f", {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}Z" if at else ""
    facts = {
        "reason": page["reason"],
        "source": f"{origin['source']}{' by ' if origin['author'] else ''}{origin['author']}{when}",
        "commit": origin.get("git_commit"),
        "labels": " ".join(page["named_by"]),
        "pending": " ".join(
            [*(page["labels"] if "live" in page else ()), *(["route"] if page.get("live") else [])]
        ),
        "keep": "loaded until model unload" if page.get("keep") else "",
        "Triton name": page.get("physical"),
        "content": page.get("content"),
        "size": amount(page["size"]) if page.get("size") else "",
        "memory": amount(page["memory"]) if page.get("memory") else "",
        "contract": "yes" if page.get("has_contract") else "",
        "tags": " ".join(f"{key}={value}" for key, value in page.get("tags", {}).items()),
    }
    yield from (f"  {name}: {text}" for name, text in facts.items() if text)
    yield from (f"  problem: {problem}" for problem in page.get("problems", ()))
    yield from (f"  finding: {finding}" for finding in page.get("findings", ()))
