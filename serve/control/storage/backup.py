"""Backups: everything that a store holds, in one file that says itself whether it is whole.

A file is lines of JSON. The first is the header (format, schema, rows per table), then comes a line
`[table, row]` per row, in an order in which they can be written, and the last line has the SHA-256
of all before it. It holds the digests of the API keys, so only its owner may read it. It can be
restored into either kind of database.

Restoring is a change too, and the history says so: the revision of the restore is above all that
the store or the backup has had, so no ETag ever means two states, and the generation does not fall.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from serve.control.storage.database import Database
from serve.control.storage.schema import (
    IDENTITY,
    counters,
    newest_schema,
    revisions,
    schema_of,
    settings,
    upgrade,
)
from serve.core.errors import Conflict, Invalid, NotFound, Unavailable

FORMAT = "servegate-backup-1"
RESTORE = "restore"  # the kind of the revision that a restore leaves
_TABLES = {table.name: table for table in (revisions, settings, counters)}  # in the file's order
_BATCH = 500  # rows that are held at a time


@dataclass(frozen=True, slots=True)
class Backup:
    """What a file holds: the schema it was taken from, when (seconds of the epoch), and rows."""

    schema: str
    at: float
    counts: dict[str, int]

    def __str__(self) -> str:
        """`12 settings and 340 revisions`."""
        return f"{self.counts['settings']} settings and {self.counts['revisions']} revisions"


def back_up(database: Database, path: Path, *, clock: Callable[[], float]) -> Backup:
    """Write one state of a store to a new file, which is there whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, _asking(database):
            with database.snapshot() as connection:
                backup = _describe(connection, database.name, clock())
                _write(file, connection, backup)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return backup


def read_backup(file: BinaryIO) -> Backup:
    """The header of a file that is whole; `Invalid` says why it is not. The file is rewound."""
    digest, last = hashlib.sha256(), b""
    for line in file:
        digest.update(last)
        last = line
    file.seek(0)
    header = _object(file.readline())
    file.seek(0)
    if header.get("format") != FORMAT:
        raise Invalid("this is not a Servegate backup", why=f"it does not start with {FORMAT}")
    if _object(last).get("sha256") != digest.hexdigest():
        raise Invalid(
            "the backup is incomplete or damaged", why="its SHA-256 is missing or does not match"
        )
    if header["schema"] > newest_schema():
        raise Invalid(
            "the backup was written by a newer Servegate",
            why=f"its schema is {header['schema']}, and this Servegate's is {newest_schema()}",
        )
    return Backup(header["schema"], header["at"], header["counts"])


def restore(
    database: Database,
    path: Path,
    *,
    replace: bool,
    author: str,
    clock: Callable[[], float],
) -> Backup:
    """Fill a store from a file, or leave it as it is. `Conflict` when it is not empty.

    `replace` gives up what it holds. No control plane may run on it: the caller sees to that.
    """
    with path.open("rb") as file:
        backup = read_backup(file)
        with _asking(database), database.writing(patient=True) as connection:
            upgrade(connection)
            newest = _newest(connection)
            if newest and not replace:
                raise Conflict(
                    f"the store {database.name} is not empty",
                    why=f"it is at revision {newest}",
                    try_this="--replace, which deletes everything in it",
                )
            generations = _generations(connection)
            for table in reversed(_TABLES.values()):
                connection.execute(sa.delete(table))
            _fill(connection, file, backup)
            _raise_counters(connection, generations)
            after = json.dumps(asdict(backup) | {"file": path.name}, sort_keys=True)
            _record(
                connection,
                id=max(newest, _newest(connection)) + 1,
                at=clock(),
                author=author,
                reason=f"restored {path.name}",
                after=after,
            )
            database.announce(connection)
    return backup


def _describe(connection: sa.Connection, name: str, at: float) -> Backup:
    schema = schema_of(connection)
    if not schema:
        raise NotFound(f"there is no store in {name}", try_this="--state FOLDER or --database URL")
    counts = {
        name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() or 0
        for name, table in _TABLES.items()
    }
    return Backup(schema, at, counts)


def _write(file: BinaryIO, connection: sa.Connection, backup: Backup) -> None:
    digest = hashlib.sha256()

    def line(value: Any) -> None:
        text = json.dumps(value, sort_keys=True).encode() + b"\n"
        digest.update(text)
        file.write(text)

    line({"format": FORMAT, **asdict(backup)})
    for name, table in _TABLES.items():
        query = sa.select(table).order_by(*table.primary_key.columns)
        for row in connection.execute(query, execution_options={"yield_per": _BATCH}):
            line([name, dict(row._mapping)])
    line({"sha256": digest.hexdigest()})


def _fill(connection: sa.Connection, file: BinaryIO, backup: Backup) -> None:
    """Write the rows of a file that was read before."""
    file.readline()
    written = dict.fromkeys(_TABLES, 0)
    for name, rows in _batches(file):
        connection.execute(sa.insert(_TABLES[name]), rows)
        written[name] += len(rows)
    if written != backup.counts:
        raise Invalid(
            "the backup is incomplete or damaged", why=f"it has {written}, not {backup.counts}"
        )


def _batches(file: BinaryIO) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Some rows of one table at a time."""
    while lines := list(islice(file, _BATCH)):
        rows: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            value = json.loads(line)
            if isinstance(value, list):  # else it is the last line
                rows.setdefault(value[0], []).append(value[1])
        yield from rows.items()


def _newest(connection: sa.Connection) -> int:
    return connection.execute(sa.select(sa.func.max(revisions.c.id))).scalar() or 0


def _generations(connection: sa.Connection) -> dict[str, int]:
    return {row.name: row.value for row in connection.execute(sa.select(counters))}


def _raise_counters(connection: sa.Connection, before: dict[str, int]) -> None:
    """No counter falls: workers hold what they have of a higher generation.

    The gateway's id stays what it was, or is made at the next start: a copy is another gateway.
    """
    restored = _generations(connection)
    restored.pop(IDENTITY, None)
    connection.execute(sa.delete(counters))
    for name in sorted({**before, **restored}):
        value = max(before.get(name, 0), restored.get(name, 0))
        connection.execute(sa.insert(counters).values(name=name, value=value))


def _record(connection: sa.Connection, **row: Any) -> None:
    """The revision of the restore; the numbers go on above it."""
    connection.execute(sa.insert(revisions).values(kind=RESTORE, key="", before=None, **row))
    if connection.dialect.name == "postgresql":  # SQLite goes on from the highest by itself
        sequence = sa.func.pg_get_serial_sequence("revisions", "id")
        connection.execute(sa.select(sa.func.setval(sequence, row["id"])))


def _object(line: bytes) -> dict[str, Any]:
    """A line's JSON object; an empty one for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@contextlib.contextmanager
def _asking(database: Database) -> Iterator[None]:
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        why = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise Unavailable(
            f"the store {database.name} does not answer", why=why, try_this=database.advice
        ) from error


def _sync_folder(folder: Path) -> None:
    """A rename is only there after a power cut once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
