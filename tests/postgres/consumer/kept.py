"""A log with small partitions, in a schema of its own: other tests have the usual ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import URL, Engine, create_engine, text

from sa_outbox import Outbox
from sa_outbox.consumer import ConsumerSettings
from sa_outbox.consumer.upkeep.command import prune
from sa_outbox.observe import Observation, RetentionHeld
from sa_outbox.schema import migrate
from sa_outbox.settings import Names

from .conftest import Database, Producer

SIZE = 10
KEPT = timedelta(hours=1)
SETTINGS = ConsumerSettings(retention=KEPT)


class Kept(Database):
    """A log with small partitions, and an operator who looks at it."""

    def __init__(self, engine: Engine, outbox: Outbox, url: URL) -> None:
        super().__init__(engine)
        self.outbox = outbox
        self.url = url
        self.producer = Producer(outbox, engine)
        self.told: list[Observation] = []

    def write(self, count: int, *, hours_ago: float = 2) -> None:
        """Commit *count* events of that age."""
        self.rows(
            "INSERT INTO outbox (event_id, event_type, payload, created_at)"
            " SELECT gen_random_uuid(), 'order.placed', jsonb_build_object('n', n),"
            " now() - make_interval(secs => 3600 * CAST(:hours AS float8))"
            " FROM generate_series(1, CAST(:count AS int)) AS n",
            hours=hours_ago,
            count=count,
        )

    def register(self, name: str, position: int, **columns: Any) -> None:
        given = {"name": name, "last_processed_id": position, **columns}
        values = ", ".join(f":{each}" for each in given)
        self.rows(f"INSERT INTO outbox_listeners ({', '.join(given)}) VALUES ({values})", **given)

    def park(self, listener: str, position: int, state: str = "parked") -> None:
        self.rows(
            "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state,"
            " due_at) VALUES (:listener, :position, gen_random_uuid(), 'order.placed', :state,"
            " now() + interval '1 year')",
            listener=listener,
            position=position,
            state=state,
        )

    @property
    def ids(self) -> list[int]:
        return [row.id for row in self.rows("SELECT id FROM outbox ORDER BY id")]

    @property
    def partitions(self) -> list[str]:
        return [
            row.relname
            for row in self.rows(
                "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid"
                " WHERE inhparent = CAST('outbox' AS regclass) ORDER BY length(relname), relname"
            )
        ]

    @property
    def tables(self) -> list[str]:
        """Every table that looks like a partition, attached or not."""
        return [
            row.relname
            for row in self.rows(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^outbox_p[0-9]+$'"
                " AND relnamespace = CAST('kept' AS regnamespace)"
                " ORDER BY length(relname), relname"
            )
        ]

    @property
    def in_rest(self) -> list[int]:
        return [row.id for row in self.rows("SELECT id FROM outbox_rest ORDER BY id")]

    async def prune(self, settings: ConsumerSettings = SETTINGS) -> tuple[RetentionHeld, ...]:
        return await prune(self.outbox, self.url, settings, self.told.append)

    def heard(self, kind: type[Observation]) -> list[Any]:
        return [each for each in self.told if isinstance(each, kind)]


@contextmanager
def migrated(migrated_url: URL) -> Iterator[Engine]:
    """Tables in the schema kept."""
    engine = create_engine(
        migrated_url.set(drivername="postgresql+psycopg"),
        connect_args={"options": "-c search_path=kept"},
    )
    with engine.begin() as connection:
        migrate(connection, Names(schema="kept"))
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA kept CASCADE"))
    engine.dispose()


def emptied_log(kept_engine: Engine, migrated_url: URL) -> Kept:
    """Nothing in any table, four partitions, the first id is 1."""
    made = Kept(kept_engine, Outbox(schema="kept", notify="off"), migrated_url)
    emptied = ", ".join(each.name for each in made.outbox.tables.metadata.tables.values())
    found = made.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^(outbox_p[0-9]+|mine)$'"
        " AND relnamespace = CAST('kept' AS regnamespace)"
    )
    with kept_engine.begin() as connection:
        for row in found:
            connection.execute(text(f"DROP TABLE {row.relname}"))
        emptied = emptied.replace("outbox_meta, ", "")
        connection.execute(text(f"TRUNCATE {emptied} RESTART IDENTITY"))
        connection.execute(text(f"UPDATE outbox_meta SET partition_size = {SIZE}"))
        for number in range(4):
            low = number * SIZE if number else "MINVALUE"
            connection.execute(
                text(
                    f"CREATE TABLE outbox_p{number} PARTITION OF outbox"
                    f" FOR VALUES FROM ({low}) TO ({(number + 1) * SIZE})"
                )
            )
    return made
