"""A standby is promoted that has not got the last commits: the consumers start over from its rows.

What a running consumer remembers is younger than the database then: how far it has read, what it
has saved. Ids are drawn a second time, for other events.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from time import monotonic
from typing import Any

import anyio
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, schema
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.observe import DeadLettered
from sa_outbox.settings import Names
from tests.support import comes_true
from tests.support.recorder import Recorder
from tests.support.standby import Pair, has_basebackup

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not has_basebackup(), reason="this PostgreSQL has no pg_basebackup"),
]

WITHIN = 10.0
"""Seconds after which every listener has gone on."""
LISTENERS = tuple(
    (f"{order}.{session}", order, session)
    for order in ("key", "total", "none")
    for session in ("session", "plain")
)
EFFECT = text("INSERT INTO effects (listener, n) VALUES (:listener, :n)")


class Scene:
    """A program on the database that fails over, and what its handlers were given."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.outbox = Outbox()
        self.got: dict[str, list[int]] = {name: [] for name, _, _ in LISTENERS}
        self.recorder = Recorder()
        self.proceed = anyio.Event()
        self.proceed.set()
        for name, order, session in LISTENERS:
            self._listen(name, order, with_session=session == "session")
        address = pair.url.render_as_string(hide_password=False)
        schema.transact(address, lambda connection: schema.migrate(connection, Names()))
        self.engine: Engine = create_engine(pair.url.set(drivername="postgresql+psycopg"))
        self.rows("CREATE TABLE effects (place bigserial, listener text, n bigint)")
        self._sessions = self.outbox.sessionmaker(self.engine)

    def _listen(self, name: str, order: Any, *, with_session: bool) -> None:
        async def plain(event: Event[Any]) -> None:
            await self.proceed.wait()
            self.got[name].append(event.payload["n"])

        async def in_session(event: Event[Any], session: AsyncSession) -> None:
            await plain(event)
            await session.execute(EFFECT, {"listener": name, "n": event.payload["n"]})

        handler: Any = in_session if with_session else plain
        self.outbox.listener(name, on="order.*", order=order)(handler)

    def consumer(self) -> Consumer:
        settings = ConsumerSettings(lease_duration=timedelta(seconds=60))
        return Consumer(
            self.outbox,
            self.pair.url.set(drivername="postgresql+asyncpg"),
            settings=settings,
            observers=[self.recorder],
        )

    def rows(self, statement: str) -> list[Any]:
        with self.engine.begin() as connection:
            result = connection.execute(text(statement))
            return list(result) if result.returns_rows else []

    def commit(self, *numbers: int) -> None:
        """One transaction."""
        with self._sessions.begin() as session:
            for n in numbers:
                session.add_event("order.placed", {"n": n}, key=f"key {n % 3}")

    def fail_over(self) -> None:
        self.pair.fail_over()
        self.engine.dispose()

    def effects(self, name: str) -> list[int]:
        found = self.rows("SELECT listener, n FROM effects ORDER BY place")
        return [row.n for row in found if row.listener == name]

    def have_got(self, numbers: set[int]) -> bool:
        return all(numbers <= set(got) for got in self.got.values())

    async def all_get(self, numbers: set[int], *, within: float = WITHIN) -> None:
        began = monotonic()
        try:
            await comes_true(lambda: self.have_got(numbers), within=within)
        except AssertionError:
            missing = {name: sorted(numbers - set(got)) for name, got in self.got.items()}
            raise AssertionError(f"missing after {monotonic() - began:.1f} s: {missing}") from None


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Pair() as pair:
        made = Scene(pair)
        yield made
        made.engine.dispose()


async def run(consumer: Consumer, *, task_status: Any) -> None:
    await consumer.run(task_status=task_status)


def in_order(got: list[int], order: str) -> bool:
    if order == "none":
        return True
    if order == "total":
        return got == sorted(got)
    return all(
        [n for n in got if n % 3 == key] == sorted(n for n in got if n % 3 == key)
        for key in range(3)
    )


async def test_every_listener_goes_on_in_order_on_a_standby_that_lost_forty_commits(
    scene: Scene,
) -> None:
    kept, lost = set(range(20)), set(range(100, 220))
    consumer = scene.consumer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(run, consumer)
        scene.commit(*kept)
        await scene.all_get(kept, within=30)
        await consumer.drain()
        scene.pair.cut_replication()
        for n in range(100, 220, 3):
            scene.commit(n, n + 1, n + 2)
        await scene.all_get(lost, within=30)
        await consumer.drain()
        highest = scene.rows("SELECT max(id) FROM outbox")[0][0]

        await anyio.to_thread.run_sync(scene.fail_over)
        for got in scene.got.values():
            got.clear()
        scene.commit(1000)
        assert scene.rows("SELECT max(id) FROM outbox")[0][0] < highest  # drawn a second time
        await scene.all_get({1000})
        for n in range(1001, 1200, 2):
            scene.commit(n, n + 1)
        new = set(range(1000, 1201))
        await scene.all_get(new)
        assert scene.rows("SELECT max(id) FROM outbox")[0][0] > highest
        await consumer.drain()
        consumer.stop()

    for name, order, session in LISTENERS:
        got = [n for n in scene.got[name] if n in new]
        assert sorted(set(got)) == sorted(new), name
        assert in_order(list(dict.fromkeys(got)), order), name
        if session == "session":
            # What was committed and lost is lost with its effects; all others are there once.
            assert sorted(scene.effects(name)) == sorted(kept | new), name
            assert in_order(scene.effects(name), order), name
    assert scene.rows("SELECT * FROM outbox_dead_letters") == []
    assert scene.recorder.of(DeadLettered) == []
