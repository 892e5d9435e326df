"""A migrated database per worker, emptied before each test, and an outbox in each of its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, select, text
from sqlalchemy.orm import Session, sessionmaker

from sa_outbox import Outbox, OutboxSession
from sa_outbox.schema import migrate
from sa_outbox.settings import Names
from tests.support.shop import Base


class CountingOutbox(Outbox):
    """Counts the commits after which consumers would be woken, and wakes nobody."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pokes = 0

    def _wake(self) -> Callable[[Engine], None]:
        return self._count

    def _count(self, _engine: Engine) -> None:
        self.pokes += 1


@pytest.fixture(scope="session")
def migrated_url(database_url: URL) -> URL:
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        migrate(connection, Names())
    Base.metadata.create_all(engine)
    engine.dispose()
    return database_url


@pytest.fixture(scope="session")
def shared_engine(migrated_url: URL) -> Iterator[Engine]:
    engine = create_engine(migrated_url.set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


@pytest.fixture
def engine(shared_engine: Engine) -> Engine:
    """The worker's database, with every table empty and ids from 1."""
    empty(shared_engine)
    return shared_engine


_EMPTIED = (
    *("outbox", "outbox_idempotency_keys", "outbox_listeners", "outbox_consumers"),
    *("outbox_deliveries", "outbox_dead_letters", "outbox_crons", "outbox_ranges"),
    *(
        "outbox_results",
        "outbox_audit",
        "outbox_inbox",
        "outbox_endpoints",
        "items",
        "orders",
        "customers",
    ),
)
_MANY = 1000
# TRUNCATE makes new files for every table and index: for a handful of rows a DELETE is ten times
# quicker, and this runs before thousands of tests. Locked as TRUNCATE would: a transaction that an
# earlier test cut off has ended then.
_EMPTY = text(
    f"DO $$BEGIN LOCK TABLE {', '.join(_EMPTIED)} IN ACCESS EXCLUSIVE MODE; "
    + " ".join(
        f"IF EXISTS (SELECT FROM {name} OFFSET {_MANY}) THEN TRUNCATE {name} CASCADE;"
        f" ELSE DELETE FROM {name}; END IF;"
        for name in _EMPTIED
    )
    + " PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false)"
    " FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL; END$$"
)


def empty(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(_EMPTY)


@dataclass
class Setup:
    """An outbox and the two ways to have sessions for it."""

    outbox: CountingOutbox
    engine: Engine
    form: str
    """``factory``: made by ``outbox.sessionmaker``; ``installed``: a plain factory with hooks."""
    maker: sessionmaker[Any]
    make: Callable[..., Session]
    session_class: type[Session]

    def rows(self) -> list[tuple[str, Any]]:
        """(event type, payload) of all that is committed, in the order of the log."""
        log = self.outbox.tables.outbox
        with self.engine.connect() as connection:
            found = connection.execute(select(log.c.event_type, log.c.payload).order_by(log.c.id))
            return [(row.event_type, row.payload) for row in found]

    def types(self) -> list[str]:
        return [name for name, _ in self.rows()]

    def flush(self, session: Session) -> None:
        """An explicit flush, as a user of this form writes it."""
        if self.form == "factory":
            session.flush()
        else:
            self.outbox.flush(session)


@pytest.fixture(params=["factory", "installed"])
def setup(request: pytest.FixtureRequest, engine: Engine) -> Setup:
    return setup_of(request.param, engine)


def setup_of(form: str, engine: Engine) -> Setup:
    outbox = CountingOutbox()
    if form == "factory":

        def make(*args: Any, **options: Any) -> Session:
            return OutboxSession(*args, outbox=outbox, **options)

        return Setup(outbox, engine, form, outbox.sessionmaker(engine), make, OutboxSession)
    plain: type[Session] = outbox.install(type("PlainSession", (Session,), {}))
    return Setup(outbox, engine, form, outbox.install(sessionmaker(engine)), plain, plain)
