"""Random sequences of session operations against the model, on a real PostgreSQL.

Checked after each sequence: no event is lost, none is a ghost, the order of adding is kept, an
event recorded on a new entity exists if and only if the entity's row does, and a deferred payload
knows the primary key.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import URL, Connection, Engine, create_engine, exc, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker
from sqlalchemy.util.concurrency import greenlet_spawn

from sa_outbox import Outbox, OutboxSession
from sa_outbox.errors import OutboxError
from tests.support.model import Model, ModelEntity, ModelEvent
from tests.support.shop import Order

T = TypeVar("T")
_examples = itertools.count(1)
_JOINED = ("conditional_savepoint", "rollback_only", "control_fully", "create_savepoint")
_FOREIGN_DECIDES = ("conditional_savepoint", "rollback_only", "create_savepoint")


class Database:
    """One database through one driver; async drivers run in a loop and a greenlet of ours."""

    def __init__(self, url: URL, driver: str) -> None:
        self.async_engine: AsyncEngine | None = None
        if driver == "asyncpg":
            self.loop = asyncio.new_event_loop()
            self.async_engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
            self.engine: Engine = self.async_engine.sync_engine
        else:
            self.engine = create_engine(url.set(drivername=f"postgresql+{driver}"))
        # SQLAlchemy draws it from the random module, which Hypothesis seeds: two workers on one
        # server would prepare under the same name.
        self.engine.dialect.create_xid = lambda: f"_sa_{uuid4().hex}"  # type: ignore[method-assign]

    def run(self, work: Callable[[], T]) -> T:
        if self.async_engine is None:
            return work()
        return self.loop.run_until_complete(greenlet_spawn(work))

    def close(self) -> None:
        self.run(self.engine.dispose)
        if self.async_engine is not None:
            self.loop.close()


class SessionMachine(RuleBasedStateMachine):
    """The operations of a session; ``database`` and ``outbox`` are set by the test."""

    database: Database
    outbox: Outbox
    plain_class: type[Session]

    def __init__(self) -> None:
        super().__init__()
        self.example = f"x{os.getpid()}_{next(_examples)}"
        self.names = itertools.count(1)
        self.model = Model()
        self.entities: list[tuple[Order, ModelEntity]] = []
        self.nested: list[SessionTransaction] = []
        self.created: dict[str, str] = {}
        self.external: Connection | None = None
        self.over = False

    # Beginning and end

    @initialize(
        form=st.sampled_from(["factory", "installed"]),
        kind=st.sampled_from(["own", "own", "own", "twophase", *_JOINED]),
    )
    def open(self, form: str, kind: str) -> None:
        self.kind = kind
        options: dict[str, Any] = {"twophase": True} if kind == "twophase" else {}
        bind: Engine | Connection = self.database.engine
        if kind in _JOINED:
            bind = self.external = self.database.run(self._begin_external)
            options["join_transaction_mode"] = kind
        if form == "factory":
            self.session: Session = OutboxSession(bind, outbox=self.outbox, **options)
        else:
            self.session = self.plain_class(bind, **options)
        self.form = form

    def _begin_external(self) -> Connection:
        connection = self.database.engine.connect()
        connection.begin()
        return connection

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        try:
            self.database.run(self._finish)
        finally:
            self.database.run(self._close)  # a sequence that failed must not keep its connection
        self._check()

    def _close(self) -> None:
        self.session.close()
        if self.external is not None:
            self.external.close()

    def _finish(self) -> None:
        """Commit what is open; a joined session's connection decides for itself."""
        if not self.over:
            self._close_savepoints()
            self.session.commit()
            self._committed()
        self.session.close()
        if self.external is not None:
            if self.external.in_transaction():
                self.external.get_transaction().commit()  # type: ignore[union-attr]  # it is in one
            self.external.close()

    def _close_savepoints(self) -> None:
        while self.nested:
            self.nested.pop().commit()
            self.model.release()

    @precondition(lambda self: self.over)
    @rule()
    def go_on(self) -> None:
        """A session whose foreign transaction is gone is of no more use: take another."""
        self.database.run(self._finish)
        for _, entity in self.entities:
            entity.where = "gone"
        self.external = None
        self.over = False
        self.open(self.form, "own")

    # What happens to events and entities

    def _name(self) -> str:
        return f"e{next(self.names)}"

    def _record(self, order: Order, entity: ModelEntity, *, deferred: bool) -> None:
        name = self._name()
        payload: Any = (lambda: {"id": order.id}) if deferred else {"id": None}
        order.record_event(name, payload, tenant=self.example)
        if entity.where in ("transient", "pending"):
            self.created[name] = entity.name
        self.model.record(entity, ModelEvent(name, entity))

    def _pick(self, wheres: tuple[str, ...], index: int) -> tuple[Order, ModelEntity] | None:
        fitting = [pair for pair in self.entities if pair[1].where in wheres]
        return fitting[index % len(fitting)] if fitting else None

    usable = precondition(lambda self: not self.over)

    @usable
    @rule(deferred=st.booleans())
    def add(self, deferred: bool) -> None:
        name = self._name()
        payload: Any = (lambda: {"id": None}) if deferred else {"id": None}
        self.outbox.add(self.session, name, payload, tenant=self.example)
        self.model.add(ModelEvent(name))

    @usable
    @rule(events=st.integers(0, 2), deferred=st.booleans(), attach=st.booleans())
    def make_entity(self, events: int, deferred: bool, attach: bool) -> None:
        order = Order(name=f"{self.example}-{next(self.names)}")
        entity = ModelEntity(str(order.name))
        self.entities.append((order, entity))
        for _ in range(events):
            self._record(order, entity, deferred=deferred)
        if attach:
            self.session.add(order)
            self.model.attach(entity)

    @usable
    @rule(index=st.integers(0, 9), deferred=st.booleans())
    def record(self, index: int, deferred: bool) -> None:
        picked = self._pick(("transient", "pending", "persistent"), index)
        if picked:
            self._record(*picked, deferred=deferred)

    @usable
    @rule(index=st.integers(0, 9))
    def add_again(self, index: int) -> None:
        picked = self._pick(("transient", "detached"), index)
        if picked:
            self.session.add(picked[0])
            self.model.attach(picked[1])

    @usable
    @rule(index=st.integers(0, 9))
    def expunge_new(self, index: int) -> None:
        picked = self._pick(("pending",), index)
        if picked:
            self.session.expunge(picked[0])
            self.model.expunge_new(picked[1])

    @usable
    @rule(index=st.integers(0, 9))
    def expunge_persistent(self, index: int) -> None:
        """Of an earlier transaction: an INSERT of this one can't be undone for a detached one."""
        picked = self._pick(("persistent",), index)
        if picked and picked[1].added_in is None and not self.nested:
            unwritten = {each.event_type for each in self.outbox.pending(self.session)}
            self.session.expunge(picked[0])
            self.model.expunge_persistent(picked[1], unwritten)

    @usable
    @rule(index=st.integers(0, 9))
    def change(self, index: int) -> None:
        """Of an earlier transaction: SQLAlchemy can't insert again what was inserted, changed and
        rolled back."""
        picked = self._pick(("persistent",), index)
        if picked and picked[1].added_in is None:
            self.database.run(lambda: setattr(picked[0], "customer_id", None))
            self.model.begin()

    # Flushes

    @usable
    @rule()
    def flush(self) -> None:
        if self.form == "factory":
            self.database.run(self.session.flush)
        else:
            self.database.run(lambda: self.outbox.flush(self.session))
        self._flushed()

    @usable
    @rule()
    def autoflush(self) -> None:
        query = select(Order.id).where(Order.name == "nobody")
        self.database.run(lambda: self.session.execute(query).all())
        self._flushed()

    def _flushed(self) -> None:
        if self.session.in_transaction():
            self.model.begin()
        self.model.flushed()

    @usable
    @rule()
    def failing_flush(self) -> None:
        """Two rows with one unique name: the flush fails and takes its scope along."""
        twin = f"{self.example}-twin{next(self.names)}"
        for _ in range(2):
            order = Order(name=twin)
            order.record_event(self._name(), tenant=self.example)
            self.session.add(order)
        self.model.begin()
        with pytest.raises(exc.IntegrityError):
            self.database.run(self.session.flush)
        with pytest.raises(OutboxError):
            self.outbox.add(self.session, self._name(), tenant=self.example)
        self._roll_back_innermost()

    @usable
    @rule(how=st.sampled_from(["flush", "commit", "begin_nested"]), fixed=st.booleans())
    def failing_callable(self, how: str, fixed: bool) -> None:
        broken = [True]

        def payload() -> dict[str, None]:
            if broken:
                raise LookupError
            return {"id": None}

        name = self._name()
        self.outbox.add(self.session, name, payload, tenant=self.example)
        self.model.add(ModelEvent(name))
        clean = not (self.session.new or self.session.dirty or self.session.deleted)
        # In a flush the failure is a failed flush. In the commit of a clean session, all stays.
        if how == "commit" and clean and not self.nested and fixed:
            with pytest.raises(LookupError):
                self.database.run(self.session.commit)
            broken.clear()
            return
        if how == "begin_nested" and clean and not self.nested:
            with pytest.raises(LookupError):
                self.database.run(self.session.begin_nested)
            self._roll_back()
            return
        self.session.add(Order(name=f"{self.example}-{next(self.names)}"))
        with pytest.raises(LookupError):
            self.database.run(self.session.flush)
        self._roll_back_innermost()

    def _roll_back_innermost(self) -> None:
        if self.nested:
            self.database.run(self.nested.pop().rollback)
            self.model.roll_back_scope()
        else:
            self._roll_back()

    # Ends of scopes

    @precondition(lambda self: not self.over and len(self.nested) < 3)
    @rule()
    def begin_nested(self) -> None:
        self.nested.append(self.database.run(self.session.begin_nested))
        self.model.begin()
        self.model.flushed()
        self.model.begin_nested()

    @precondition(lambda self: not self.over and self.nested)
    @rule()
    def release(self) -> None:
        self.database.run(self.nested.pop().commit)
        self.model.flushed()
        self.model.release()

    @precondition(lambda self: not self.over and self.nested)
    @rule()
    def roll_back_savepoint(self) -> None:
        self.database.run(self.nested.pop().rollback)
        self.model.roll_back_scope()

    @usable
    @rule()
    def commit(self) -> None:
        self.database.run(self.session.commit)
        self._committed()

    @precondition(lambda self: not self.over and self.kind == "twophase" and not self.nested)
    @rule(commit=st.booleans())
    def prepare(self, commit: bool) -> None:
        self.add(deferred=False)
        self.database.run(self.session.prepare)
        with pytest.raises(OutboxError):
            self.outbox.add(self.session, self._name(), tenant=self.example)
        if commit:
            self.database.run(self.session.commit)
            self._committed()
        else:
            self._roll_back()

    def _committed(self) -> None:
        self.nested.clear()
        self.model.begin()
        self.model.flushed()
        self.model.commit()

    @usable
    @rule()
    def roll_back(self) -> None:
        self._roll_back()

    def _roll_back(self) -> None:
        had_transaction = self.session.in_transaction()
        self.database.run(self.session.rollback)
        self.nested.clear()
        self.model.roll_back()
        if had_transaction and self.kind in ("conditional_savepoint", "rollback_only"):
            self._external_rolled_back()

    def _external_rolled_back(self) -> None:
        """The session has taken the whole foreign transaction along; the sequence ends here."""
        assert self.external is not None
        if not self.external.in_transaction():
            self.model.committed.clear()
            self.model.committed_entities.clear()
        self.over = True

    @usable
    @rule(how=st.sampled_from(["close", "reset"]))
    def close(self, how: str) -> None:
        unwritten = {each.event_type for each in self.outbox.pending(self.session)}
        self.database.run(getattr(self.session, how))
        assert self.outbox.pending(self.session) == ()
        self._model_close(unwritten)
        self.nested.clear()

    def _model_close(self, unwritten: set[str]) -> None:
        """New objects are transient again, stored ones are detached and keep what was not written.
        In somebody else's transaction what was flushed outside of a savepoint stays, as it would
        without us; in our own, nothing does."""
        for _, entity in self.entities:
            if entity.where == "pending":
                self.model.expunge_new(entity)
            elif entity.where == "persistent" and entity.added_in is None:
                self.model.expunge_persistent(entity, unwritten)
        scope = self.model.scope
        flushed = [pair[1] for pair in self.entities if pair[1].where == "persistent"]
        while scope is not None and scope.parent is not None:
            scope = scope.parent
        if scope is not None and self.kind in ("conditional_savepoint", "rollback_only"):
            self.model.committed += [each for each in scope.events if each.name not in unwritten]
            kept = {each.name for each in scope.entities if each.where == "persistent"}
            self.model.committed_entities |= kept
        self.model.scope = None
        for entity in flushed:
            entity.where = "gone"

    # The verdict

    def _check(self) -> None:
        log = self.outbox.tables.outbox
        query = select(log.c.event_type, log.c.payload).where(log.c.tenant == self.example)
        names = select(Order.name, Order.id).where(Order.name.startswith(self.example + "-"))

        def read() -> tuple[list[Any], dict[str | None, int]]:
            with self.database.engine.connect() as connection:
                rows = connection.execute(query.order_by(log.c.id)).all()
                return list(rows), {row.name: row.id for row in connection.execute(names)}

        rows, ids = self.database.run(read)
        found = [row.event_type for row in rows]
        expected = {each.name: each for each in self.model.committed}
        assert len(found) == len(set(found)), "doubled"
        assert set(found) - set(expected) == set(), "ghosts"
        assert set(expected) - set(found) == set(), "lost"
        self._check_order([expected[name] for name in found])
        for row in rows:
            entity = expected[row.event_type].entity
            if (row.payload or {}).get("id") is not None:
                assert entity is not None
                assert row.payload["id"] == ids[entity.name], "payload without the primary key"
        for name, owner in self.created.items():
            if name in expected:
                assert owner in ids, "an event without its row"

    def _check_order(self, found: list[ModelEvent]) -> None:
        """Of a session's events, and of each entity's, the order is that of adding."""
        for owner in {each.entity for each in found}:
            places = [self.model.order[each.name] for each in found if each.entity is owner]
            assert places == sorted(places), "out of order"


@pytest.fixture(scope="module", params=["psycopg", "asyncpg"])
def database(request: pytest.FixtureRequest, migrated_url: URL) -> Iterator[Database]:
    database = Database(migrated_url, request.param)
    yield database
    database.close()


def run_machine(database: Database, examples: int) -> None:
    outbox = Outbox(notify="off")
    machine = type(
        "Machine",
        (SessionMachine,),
        {
            "database": database,
            "outbox": outbox,
            "plain_class": outbox.install(sessionmaker(class_=Session)).class_,
        },
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


def test_no_event_is_lost_ghostly_or_out_of_order(database: Database) -> None:
    run_machine(database, 60)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_event_is_lost_ghostly_or_out_of_order_in_many_sequences(database: Database) -> None:
    """Others in each run. ``HYPOTHESIS_PROFILE=long`` has thousands, for a change of the hooks."""
    run_machine(database, 8 * settings().max_examples)
