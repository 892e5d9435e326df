"""Dead letters are replayed from their copy, to their listener alone, in the order of their key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.errors import DeadLetterNotFound, InvalidEvent, NotEdited, PayloadError
from sa_outbox.operations.dead_letters import DeadLetterFilter, show_dead_letter
from sa_outbox.operations.operator import Operator
from sa_outbox.operations.resolution import (
    Place,
    Resolved,
    choose_dead_letters,
    discard_dead_letters,
    edit_dead_letter,
    newest_dead_letter,
    replay_dead_letters,
)
from sa_outbox.settings import Limits
from sa_outbox.sql.listener import expiry
from tests.support import comes_true

from .conftest import LATER, ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

ME = Operator(who="ann", why="fixed in 1.2")
EFFECT = text("INSERT INTO effects VALUES ('mail', :n)")


class Mail:
    """A listener that fails for the numbers in ``bad``."""

    def __init__(self, outbox: Outbox, **options: Any) -> None:
        self.got: list[int] = []
        self.ids: list[Any] = []
        self.bad: set[int] = set()
        self.outbox = outbox
        self.options = {"retry": ONCE, **options}
        outbox.listener("mail", on="order.*", **self.options)(self.send)

    async def send(self, event: Event[Any]) -> None:
        if event.payload["n"] in self.bad:
            raise ValueError("no such address")
        self.got.append(event.payload["n"])
        self.ids.append(event.event_id)


def replay(database: Database, outbox: Outbox, *ids: int) -> Resolved:
    with database.engine.begin() as connection:
        return replay_dead_letters(connection, outbox.tables, ids, ME)


def open_ones(database: Database) -> list[int]:
    found = database.rows("SELECT id FROM outbox_dead_letters WHERE resolution IS NULL ORDER BY id")
    return [row.id for row in found]


def prune(database: Database) -> None:
    """As retention does: the events are gone from the log."""
    database.rows("DELETE FROM outbox")


ORDERS = pytest.mark.parametrize("order", ["key", "total", "none"])


@ORDERS
@pytest.mark.parametrize("pruned", [False, True], ids=["in the log", "gone from it"])
async def test_a_replay_comes_from_the_copy_to_its_listener_alone(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Any,
    pruned: bool,
) -> None:
    mail = Mail(outbox, order=order)
    mail.bad = {1, 2}
    others: list[int] = []

    @outbox.listener("other", on="order.*")
    async def other(event: Event[Any]) -> None:
        others.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(1, 2, 3, key="a")
        await running.dead("mail", 2)
        await running.done("mail")
        await running.done("other", 3)
        if pruned:
            prune(database)
        mail.bad = set()
        first, second = open_ones(database)

        done = replay(database, outbox, first, second)
        await running.done("mail", 3)

        assert done == Resolved(ids=(first, second), left=())
        assert mail.got == [3, 1, 2] if order != "none" else sorted(mail.got) == [1, 2, 3]
        assert others == [1, 2, 3]
        assert database.deliveries("mail") == []
        letters = database.dead_letters("mail")
        assert [each.resolution for each in letters] == ["replayed", "replayed"]
        assert {each.event_id for each in letters} <= set(mail.ids)
        # Once and for all.
        assert replay(database, outbox, first, second) == Resolved(ids=(), left=(first, second))

    audited = database.rows(
        "SELECT action, actor_id, listener, detail ->> 'why' AS why FROM outbox_audit ORDER BY id"
    )
    assert [tuple(row) for row in audited] == [("replayed", "ann", "mail", "fixed in 1.2")] * 2


@ORDERS
@pytest.mark.parametrize("pruned", [False, True], ids=["in the log", "gone from it"])
async def test_a_replay_that_fails_again_is_attempted_again_and_then_a_new_dead_letter(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Any,
    pruned: bool,
) -> None:
    mail = Mail(outbox, order=order, retry=RetryPolicy(schedule=[timedelta(milliseconds=10)]))
    mail.bad = {1}

    async with consuming(outbox) as running:
        producer.add(1, key="a")
        await running.dead("mail")
        if pruned:
            prune(database)
        (first,) = open_ones(database)
        replay(database, outbox, first)
        await running.dead("mail", 2)

    assert database.deliveries("mail") == []
    (old, new) = database.dead_letters("mail")
    assert (old.resolution, new.resolution) == ("replayed", None)
    assert (new.event_id, new.position, new.payload) == (old.event_id, old.position, old.payload)
    assert [each["attempt"] for each in new.errors] == [1, 2]


@pytest.mark.parametrize("order", ["key", "total"])
async def test_events_of_its_key_wait_behind_a_replay_that_waits(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    mail = Mail(outbox, order=order)
    mail.bad = {1}
    async with consuming(outbox) as running:
        producer.add(1, key="a")
        await running.dead("mail")
        (first,) = open_ones(database)
    # Nobody works now, and the replay is for later: as one that failed and is attempted again.
    replay(database, outbox, first)
    database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp() + interval '1 hour'")
    prune(database)
    mail.bad = set()

    async with consuming(outbox) as running:
        producer.add(2, 3, key="a")
        producer.add(4, key="b")
        producer.add(5)
        await running.done("mail", 2)
        await comes_true(lambda: len(database.deliveries("mail")) == 3)
        assert sorted(mail.got) == [4, 5]
        assert [each.state for each in database.deliveries("mail")] == [
            "parked",
            "behind",
            "behind",
        ]
        database.rows(
            "UPDATE outbox_deliveries SET due_at = clock_timestamp() WHERE state = 'parked'"
        )
        database.rows("SELECT pg_notify('outbox', 'released')")
        await running.done("mail", 5)

    assert mail.got[2:] == [1, 2, 3]


async def test_replays_of_a_key_and_one_that_waits_already_keep_their_order(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Two that are parked: the first of them is the head, and none behind the second passes it."""
    mail = Mail(outbox)
    mail.bad = {1, 3}
    async with consuming(outbox) as running:
        producer.add(1, 2, 3, 4, key="a")
        await running.dead("mail", 2)
        await running.done("mail", 2)
    first, third = open_ones(database)
    database.rows(  # 4 is made to wait behind 3, which waits for an attempt
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, key, state,"
        " due_at, attempts) SELECT 'mail', id, event_id, event_type, key,"
        " CASE id WHEN 3 THEN 'parked' ELSE 'behind' END,"
        " clock_timestamp() + interval '1 hour', 1 FROM outbox WHERE id > 2"
    )
    mail.bad, mail.got = set(), []

    assert replay(database, outbox, third) == Resolved(ids=(), left=(third,))  # it waits already
    replay(database, outbox, first)
    async with consuming(outbox) as running:
        await running.done("mail")
        assert mail.got == [1]
        database.rows(
            "UPDATE outbox_deliveries SET due_at = clock_timestamp() WHERE state = 'parked'"
        )
        database.rows("SELECT pg_notify('outbox', 'released')")
        await running.done("mail", 3)

    assert mail.got == [1, 3, 4]


async def test_one_that_fails_does_not_hold_up_other_keys_of_a_total_order(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    got: list[int] = []
    bad = {1}

    @outbox.listener("mail", on="order.*", order="total", retry=LATER)
    async def send(event: Event[Any]) -> None:
        n = event.payload["n"]
        if n == 1 and got:
            begun.set()
            await go_on.wait()
        if n in bad:
            raise ValueError("no")
        got.append(n)

    async with consuming(outbox) as running:
        producer.add(0)
        await running.done("mail")
        database.rows(
            "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, key,"
            " payload, event_created_at, reason) SELECT 'mail', 0, gen_random_uuid(), 'order.x',"
            " 'a', jsonb_build_object('n', 1), clock_timestamp(), 'attempts'"
        )
        replay(database, outbox, *open_ones(database))
        with anyio.fail_after(10):
            await begun.wait()
        producer.add(2, key="b")
        producer.add(3)
        producer.add(4, key="a")
        await comes_true(lambda: _waiting(running) == 2)
        go_on.set()
        await running.done("mail", 3)
        assert got == [0, 2, 3]
        await comes_true(lambda: len(database.deliveries("mail")) == 2)
        assert [each.state for each in database.deliveries("mail")] == ["parked", "behind"]


def _waiting(running: Any) -> int:
    loops = running.consumer._services.workload.holder.loops
    return sum(loop.source.lanes.count for loop in loops.values())


async def test_a_handler_s_effects_and_the_end_of_a_replay_are_one_transaction(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """The process is lost in the middle: the next one delivers it, once."""
    bad, begun = {1}, anyio.Event()
    hang = False

    @outbox.listener("mail", on="order.*", retry=ONCE)
    async def send(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] in bad:
            raise ValueError("no")
        await session.execute(EFFECT, {"n": event.payload["n"]})
        begun.set()
        if hang:
            await anyio.sleep_forever()

    async with consuming(outbox) as running:
        producer.add(1, key="a")
        await running.dead("mail")
    bad, hang = set(), True
    prune(database)
    replay(database, outbox, *open_ones(database))
    async with consuming(outbox, grace_period=timedelta(milliseconds=1)) as running:
        with anyio.fail_after(10):
            await begun.wait()
    assert database.effects("mail") == []
    hang = False

    async with consuming(outbox) as running:
        await running.done("mail")

    assert database.effects("mail") == [1]
    assert database.deliveries("mail") == []


class TestEdit:
    @pytest.fixture
    def letter(self, database: Database, outbox: Outbox) -> int:
        database.rows("INSERT INTO outbox_listeners (name, last_processed_id) VALUES ('mail', 0)")
        database.rows(
            "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, key,"
            " payload, headers, event_created_at, reason) SELECT 'mail', 0, gen_random_uuid(),"
            " 'order.placed', 'a', '{\"n\": 1}', '{\"version\": 1, \"x\": \"y\"}',"
            " clock_timestamp(), 'attempts'"
        )
        return open_ones(database)[0]

    def edit(self, database: Database, outbox: Outbox, letter: int, **options: Any) -> Any:
        given = {"edits": 0, "payload": {"n": 7}, **options}
        with database.engine.begin() as connection:
            return edit_dead_letter(connection, outbox.tables, letter, ME, **given)

    async def test_what_was_edited_is_delivered(
        self, outbox: Outbox, database: Database, consuming: Consuming, letter: int
    ) -> None:
        mail = Mail(outbox)

        edited = self.edit(database, outbox, letter)
        replay(database, outbox, letter)
        async with consuming(outbox) as running:
            await running.done("mail")

        assert edited.edits == 1
        assert mail.got == [7]

    def test_the_second_of_two_is_told_and_changes_nothing(
        self, outbox: Outbox, database: Database, letter: int
    ) -> None:
        self.edit(database, outbox, letter, headers={"z": "1", "version": 2})
        with pytest.raises(NotEdited, match="someone else has edited"):
            self.edit(database, outbox, letter, payload={"n": 8})
        self.edit(database, outbox, letter, payload={"n": 9}, edits=1)

        with database.engine.connect() as connection:
            found = show_dead_letter(connection, outbox.tables, letter)
        assert (found.payload, found.headers) == ('{"n": 9}', '{"z": "1", "version": 2}')
        original = database.value("SELECT original FROM outbox_dead_letters")
        assert original == {"payload": {"n": 1}, "headers": {"version": 1, "x": "y"}}

    def test_one_that_is_resolved_is_not_edited(
        self, outbox: Outbox, database: Database, letter: int
    ) -> None:
        with database.engine.begin() as connection:
            done = discard_dead_letters(connection, outbox.tables, [letter], ME, resolution="fixed")
        assert done.ids == (letter,)
        with pytest.raises(NotEdited, match="fixed by ann"):
            self.edit(database, outbox, letter)

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"payload": float("nan")}, PayloadError),
            ({"payload": "\0"}, PayloadError),
            ({"payload": "x" * 100, "limits": Limits(max_payload_bytes=50)}, PayloadError),
            ({"headers": {"a b": "c"}}, InvalidEvent),
            ({"headers": {"version": "1"}}, InvalidEvent),
        ],
    )
    def test_what_add_event_refuses_is_refused(
        self,
        outbox: Outbox,
        database: Database,
        letter: int,
        options: dict[str, Any],
        error: type[Exception],
    ) -> None:
        with pytest.raises(error):
            self.edit(database, outbox, letter, **options)

    def test_one_that_is_not_there(self, outbox: Outbox, database: Database) -> None:
        with pytest.raises(DeadLetterNotFound):
            self.edit(database, outbox, 10**9)


def test_the_copy_is_kept_as_long_as_its_replay_waits(outbox: Outbox, database: Database) -> None:
    database.rows("INSERT INTO outbox_listeners (name) VALUES ('a')")
    database.rows(
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
        " event_created_at, reason) SELECT 'a', n, gen_random_uuid(), 'order.x', '1',"
        " clock_timestamp(), 'attempts' FROM generate_series(1, 2) AS n"
    )
    replay(database, outbox, 1, 2)
    database.rows("DELETE FROM outbox_deliveries WHERE position = 2")
    database.rows("UPDATE outbox_dead_letters SET resolved_at = now() - interval '1 year'")

    with database.engine.begin() as connection:
        purge = expiry.resolved_dead_letters(outbox.tables)
        connection.execute(purge, {"above": 0, "limit": 10, "seconds": 60.0})

    assert [row.id for row in database.rows("SELECT id FROM outbox_dead_letters")] == [1]


def test_many_are_chosen_in_the_order_of_the_log_in_batches_that_end(
    outbox: Outbox, database: Database
) -> None:
    database.rows(
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, key, payload,"
        " event_created_at, reason) SELECT (ARRAY['b', 'a'])[1 + n % 2], 20 - n,"
        " gen_random_uuid(), 'order.x', 'k', '1', clock_timestamp(), 'attempts'"
        " FROM generate_series(1, 7) AS n"
    )
    with database.engine.begin() as connection:
        newest = newest_dead_letter(connection, outbox.tables)
        seen: list[int] = []
        after: Place | None = None
        while True:
            chosen = choose_dead_letters(
                connection, outbox.tables, DeadLetterFilter(), newest=newest, after=after, limit=3
            )
            if not chosen.ids:
                break
            seen += chosen.ids
            after = chosen.last
        # Of listeners that nobody knows nothing is replayed; it stays.
        assert replay_dead_letters(connection, outbox.tables, seen, ME).ids == ()
    assert seen == [7, 5, 3, 1, 6, 4, 2]


async def test_the_audit_names_the_operator_and_the_project_and_not_whoever_added_the_event(
    outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    Mail(outbox)
    async with consuming(outbox) as running:
        await running.listening()
    headers = '{"actor_type": "user", "actor_id": "u1", "request_id": "r1", "project_id": "p1"}'
    database.rows(
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
        " event_created_at, reason, headers) SELECT 'mail', n, gen_random_uuid(), 'order.x', '1',"
        f" clock_timestamp(), 'attempts', '{headers}' FROM generate_series(1, 3) AS n"
    )
    first, second, third = open_ones(database)
    with database.engine.begin() as connection:
        replay_dead_letters(connection, outbox.tables, [first], ME)
        discard_dead_letters(connection, outbox.tables, [second], ME)
        edit_dead_letter(connection, outbox.tables, third, ME, edits=0, payload=2)

    rows = database.rows("SELECT * FROM outbox_audit ORDER BY id")
    assert [row.action for row in rows] == ["replayed", "discarded", "edited"]
    who = {(row.project_id, row.actor_type, row.actor_id, row.request_id) for row in rows}
    assert who == {("p1", "operator", ME.who, None)}


async def test_two_who_discard_the_same_at_once_discard_it_once(
    outbox: Outbox, database: Database
) -> None:
    database.rows(
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
        " event_created_at, reason) SELECT 'a', n, gen_random_uuid(), 'order.x', '1',"
        " clock_timestamp(), 'attempts' FROM generate_series(1, 4) AS n"
    )
    done: list[Resolved] = []

    def discard() -> None:
        with database.engine.begin() as connection:
            done.append(discard_dead_letters(connection, outbox.tables, [4, 2, 1, 3], ME))

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(anyio.to_thread.run_sync, discard)

    assert sorted(each for some in done for each in some.ids) == [1, 2, 3, 4]
    assert database.value("SELECT count(*) FROM outbox_audit WHERE action = 'discarded'") == 4


@pytest.mark.woken_by("poll")
async def test_without_notifications_a_replay_waits_for_a_poll_and_not_for_a_renewal(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    mail = Mail(outbox)
    mail.bad = {1}
    producer.add(1, key="a")
    async with consuming(outbox, lease_duration=timedelta(minutes=10)) as running:
        await running.settled("mail", outcome="dead")
        mail.bad = set()
        replay(database, outbox, 1)
        await running.settled("mail", outcome="done")

    assert mail.got == [1]
