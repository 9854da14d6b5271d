"""Migrations: from the first schema, with what people had in it, to the newest."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from serve.control.storage.database import Database, open_database
from serve.control.storage.schema import metadata, newest_schema, schema_of, upgrade
from serve.control.storage.store import Store, StoredEntry, StoreEdit
from serve.core.errors import CannotStart

Where = Path | str
ROWS = [
    (1, "route", "digits", None, {"split": {"1": 100}}),
    (2, "label", "digits:stable", None, {"version": 1}),
    (7, "route", "digits", {"split": {"1": 100}}, {"split": {"1": 60, "2": 40}}),
]


@pytest.fixture
def database(where: Where) -> Iterator[Database]:
    """A store as the first Servegate left it."""
    made = open_database(where)
    rows = [
        {"id": n, "kind": kind, "key": key, "after": json.dumps(after)}
        | {"before": None if before is None else json.dumps(before)}
        for n, kind, key, before, after in ROWS
    ]
    with made.writing(patient=True) as connection:
        upgrade(connection, "0001")
        for statement, written in (
            (
                "revisions (id, at, author, reason, kind, key, before, after) values"
                " (:id, 1.5, 'ada', 'because', :kind, :key, :before, :after)",
                rows,
            ),
            ("settings values (:kind, :key, :after, :id)", rows[1:]),
            ("counters values ('generation', 41)", [{}]),
        ):
            connection.execute(sa.text(f"insert into {statement}"), written)
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("select setval('revisions_id_seq', 7)"))
    yield made
    made.close()


def test_what_was_in_the_first_schema_is_right_in_the_newest_and_the_future_is_left_alone(
    where: Where, database: Database
) -> None:
    store = Store(where, clock=lambda: 2.5)
    store.migrate()
    with database.reading() as connection:
        assert schema_of(connection) == newest_schema()
    assert asyncio.run(store.read()) == {
        ("label", "digits:stable"): StoredEntry({"version": 1}, 2),
        ("route", "digits"): StoredEntry({"split": {"1": 60, "2": 40}}, 7),
    }
    rows = asyncio.run(store.history())
    assert [(row["id"], json.loads(row["after"])) for row in rows] == [
        (number, after) for number, *_, after in reversed(ROWS)
    ]
    assert asyncio.run(store.next_generation(0)) == 42
    assert (
        asyncio.run(store.apply(StoreEdit("route", "digits", None, "x" * 999, if_match='"7"'))) == 8
    )
    with database.writing(patient=True) as connection:
        connection.execute(sa.text("update alembic_version set version_num = '9999'"))
    with pytest.raises(CannotStart, match="written by a newer Servegate"):
        store.migrate()
    store.close()


def test_the_tables_are_what_the_code_says_they_are(where: Where, database: Database) -> None:
    with database.writing(patient=True) as connection:
        upgrade(connection)
        found = sa.inspect(connection)
        for table in metadata.sorted_tables:
            columns = {one["name"]: one for one in found.get_columns(table.name)}
            assert list(columns) == [column.name for column in table.columns]
            assert [columns[c.name]["nullable"] for c in table.columns] == [
                c.nullable for c in table.columns
            ]
            indices = {one["name"] for one in found.get_indexes(table.name)}
            assert indices == {index.name for index in table.indexes}
            if connection.dialect.name == "postgresql":
                for column in table.columns:
                    there = columns[column.name]["type"]
                    assert isinstance(there, sa.types.Double | type(column.type)), column
                    assert getattr(there, "length", None) == getattr(column.type, "length", None)
