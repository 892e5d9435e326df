"""What an operator sees: the overview, events and dead letters, on real tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, text

from sa_outbox import Outbox
from sa_outbox.database.tables import Tables, tables
from sa_outbox.errors import DeadLetterNotFound, EventNotFound, SchemaError
from sa_outbox.operations.dead_letters import (
    DeadLetterFilter,
    count_dead_letters,
    list_dead_letters,
    show_dead_letter,
)
from sa_outbox.operations.events import EventFilter, first_id_since, list_events, show_event
from sa_outbox.operations.overview import ListenerOverview, Overview
from sa_outbox.operations.overview import overview as read_overview
from sa_outbox.settings import Names
from sa_outbox.sql.people.overview import MAX_COUNTED
from tests.support.backlog import agree

TABLES = tables(Names())
MINUTE = timedelta(minutes=1)


@pytest.fixture
def connection(engine: Engine) -> Any:
    with engine.connect() as connection:
        yield connection
        connection.rollback()


def run(connection: Connection, statement: str, **values: object) -> None:
    connection.execute(text(statement), values)


def add_events(connection: Connection, count: int) -> None:
    """An event for each minute before now, the last one just now."""
    run(
        connection,
        "INSERT INTO outbox (event_id, event_type, key, tenant, payload, created_at)"
        " SELECT gen_random_uuid(), CASE n % 2 WHEN 0 THEN 'order.placed' ELSE 'mail_sent' END,"
        " 'k' || n % 3, 't' || n % 2, jsonb_build_object('n', n),"
        " clock_timestamp() - make_interval(mins => :count - n)"
        " FROM generate_series(1, :count) AS n",
        count=count,
    )


def add_listener(connection: Connection, name: str, position: int = 0, **columns: str) -> None:
    names = "".join(f", {column}" for column in columns)
    values = "".join(f", {value}" for value in columns.values())
    run(
        connection,
        f"INSERT INTO outbox_listeners (name, last_processed_id{names})"
        f" VALUES (:name, :position{values})",
        name=name,
        position=position,
    )


def bury(connection: Connection, position: int, listener: str = "mail", **columns: str) -> int:
    names = "".join(f", {column}" for column in columns)
    values = "".join(f", {value}" for value in columns.values())
    return int(
        connection.execute(
            text(
                "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, key,"
                f" tenant, payload, event_created_at, reason, attempts{names})"
                " SELECT :listener, id, event_id, event_type, key, tenant, payload, created_at,"
                f" 'attempts', 5{values} FROM outbox WHERE id = :position RETURNING id"
            ),
            {"listener": listener, "position": position},
        ).scalar_one()
    )


def overview(connection: Connection, tables: Tables) -> Overview:
    """Whatever is planted: the view of the backlog has the same figures."""
    found = read_overview(connection, tables)
    agree(connection, found)
    return found


def of(found: Overview, name: str) -> ListenerOverview:
    (one,) = [each for each in found.listeners if each.name == name]
    return one


class TestOverview:
    def test_an_outbox_in_which_nothing_is(self, connection: Connection) -> None:
        found = overview(connection, TABLES)

        assert (found.listeners, found.consumers, found.holders) == ((), (), ())
        assert (found.log.first_id, found.log.last_id, found.log.most_events) == (None, None, 0)
        assert found.database
        assert abs(found.at - datetime.now(UTC)) < timedelta(hours=1)

    def test_lag_is_what_is_above_the_cursor_and_in_its_gaps(self, connection: Connection) -> None:
        add_events(connection, 20)
        add_listener(connection, "done", 20)
        add_listener(connection, "behind", 15)
        add_listener(connection, "gaps", 20, gaps="'[[3, 4], [10, 10]]'")
        add_listener(connection, "rolled_back", 20, gaps="'[[21, 90]]'")

        found = overview(connection, TABLES)

        assert (of(found, "done").lag_events, of(found, "done").lag_seconds) == (0, None)
        assert of(found, "behind").lag_events == 5
        assert of(found, "behind").lag_seconds == pytest.approx(4 * 60, abs=30)
        assert of(found, "gaps").lag_events == 3
        assert of(found, "gaps").lag_seconds == pytest.approx(17 * 60, abs=30)
        assert of(found, "rolled_back").lag_seconds is None  # nothing is visible there
        assert (found.log.first_id, found.log.last_id, found.log.most_events) == (1, 20, 20)

    def test_excluded_event_types_are_no_lag(self, connection: Connection) -> None:
        add_events(connection, 20)
        add_listener(connection, "some", event_types="ARRAY['*', '!mail_*']")
        add_listener(connection, "none", event_types="ARRAY['mail_*', '!mail_sent']")

        found = overview(connection, TABLES)

        assert of(found, "some").lag_events == 10
        assert of(found, "none").lag_events == 0

    def test_lag_is_what_the_filter_and_the_tenant_of_a_listener_leave(
        self, connection: Connection
    ) -> None:
        """Among those above the cursor and in its gaps. What nobody reads for a count, counts."""
        add_events(connection, 20)
        run(
            connection,
            "UPDATE outbox SET payload = payload || jsonb_build_object('kind', id % 4, 'text',"
            " CASE WHEN id = 2 THEN (SELECT string_agg(md5(CAST(n AS text)), '')"
            " FROM generate_series(1, 1000) AS n) END)",
        )
        few = {"event_types": "ARRAY['order.placed']", "payload_filter": "'{\"kind\": 0}'"}
        add_listener(connection, "all")
        add_listener(connection, "some", 0, **few)
        add_listener(connection, "one", 19, gaps="'[[3, 8]]'", **few)
        add_listener(connection, "tenant", tenant="'t1'")
        add_listener(connection, "odd", payload_filter="'[1]'")

        found = overview(connection, TABLES)

        lags = {each.name: each.lag_events for each in found.listeners}
        assert lags == {"all": 20, "some": 5 + 1, "one": 2 + 1, "tenant": 10, "odd": 1}
        assert of(found, "one").lag_seconds == pytest.approx(16 * 60, abs=30)

    def test_far_behind_lag_is_told_by_ids(self, connection: Connection) -> None:
        add_events(connection, MAX_COUNTED + 500)
        run(connection, "DELETE FROM outbox WHERE id BETWEEN 2 AND 200")
        add_listener(connection, "far", 0)
        add_listener(connection, "near", MAX_COUNTED)

        found = overview(connection, TABLES)

        assert of(found, "far").lag_events == MAX_COUNTED + 500  # 199 more than there are
        assert of(found, "near").lag_events == 500

    def test_a_partitioned_listener_is_as_late_as_its_last_partition(
        self, connection: Connection
    ) -> None:
        add_events(connection, 10)
        run(
            connection,
            "INSERT INTO outbox_listeners (name, partition, partition_count, last_processed_id,"
            " locked_by, lease_expires_at) VALUES"
            " ('mail', 0, 2, 9, 'b', clock_timestamp() + interval '1 hour'),"
            " ('mail', 1, 2, 4, 'a', clock_timestamp() - interval '1 hour')",
        )

        mail = of(overview(connection, TABLES), "mail")

        assert [each.lag_events for each in mail.cursors] == [1, 6]
        assert mail.lag_events == 6
        assert mail.lag_seconds == mail.cursors[1].lag_seconds
        assert mail.owners == ("b",)
        assert mail.cursors[0].lease_seconds == pytest.approx(3600, abs=60)
        assert (mail.cursors[1].owner, mail.cursors[1].lease_expired) == (None, True)

    def test_a_failing_listener_tells_its_retries_and_its_last_error(
        self, connection: Connection
    ) -> None:
        add_listener(
            connection,
            "mail",
            retry_count="3",
            retry_position="7",
            retry_after="clock_timestamp() + interval '5 min'",
            last_error_code="'timeout'",
            last_error="'too slow'",
            last_error_at="clock_timestamp()",
            paused_at="clock_timestamp()",
        )

        mail = of(overview(connection, TABLES), "mail")

        assert (mail.retry_count, mail.cursors[0].retry_position) == (3, 7)
        assert mail.last_error is not None
        assert mail.last_error[1:] == ("timeout", "too slow")
        assert mail.paused_at is not None

    def test_deliveries_dead_letters_and_ranges_are_counted(self, connection: Connection) -> None:
        add_events(connection, 12)
        add_listener(connection, "mail", 12)
        run(
            connection,
            "INSERT INTO outbox_deliveries"
            " (listener, position, event_id, event_type, state, due_at)"
            " SELECT 'mail', n, gen_random_uuid(), 'a',"
            " (ARRAY['scheduled', 'parked', 'behind', 'behind', 'cancelled'])[n],"
            " clock_timestamp() FROM generate_series(1, 5) AS n",
        )
        run(
            connection,
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by,"
            " lease_expires_at) VALUES"
            " ('mail', 9, '[[8, 9]]', 'a', clock_timestamp() + interval '1 hour'),"
            " ('mail', 12, '[[6, 6], [12, 12]]', NULL, NULL)",
        )
        bury(connection, 1)
        bury(connection, 2)
        bury(connection, 3, resolution="'discarded'", resolved_at="clock_timestamp()")
        bury(connection, 3, listener="gone")

        found = overview(connection, TABLES)

        mail = of(found, "mail")
        counts = mail.deliveries
        assert (counts.scheduled, counts.parked, counts.behind, counts.cancelled) == (1, 1, 2, 1)
        assert counts.complete
        assert counts.next_due_at is not None
        assert (mail.ranges.ranges, mail.ranges.free, mail.ranges.events) == (2, 1, 4)
        assert mail.ranges.seconds == pytest.approx(6 * 60, abs=30)
        assert mail.lag_seconds == mail.ranges.seconds
        assert (mail.dead_letters, of(found, "gone").dead_letters, found.dead_letters) == (2, 1, 3)
        assert of(found, "gone").cursors == ()

    def test_consumers_that_are_alive_and_writers_that_are_open_are_named(
        self, connection: Connection, engine: Engine
    ) -> None:
        run(
            connection,
            "INSERT INTO outbox_consumers (owner, listeners, expires_at) VALUES"
            " ('here', ARRAY['mail'], clock_timestamp() + interval '1 hour'),"
            " ('gone', ARRAY['mail'], clock_timestamp() - interval '1 hour')",
        )
        with engine.connect() as writer:
            run(writer, "SET application_name = 'till'")
            add_events(writer, 1)
            found = overview(connection, TABLES)

        assert [(each.owner, each.listeners) for each in found.consumers] == [("here", ("mail",))]
        (holder,) = found.holders
        assert (holder.application_name, holder.state) == ("till", "idle in transaction")
        assert holder.pid

    def test_missing_tables_are_told_with_what_makes_them(self, connection: Connection) -> None:
        with pytest.raises(SchemaError, match="sa-outbox migrate"):
            overview(connection, tables(Names(prefix="nowhere")))


class TestEvents:
    def test_pages_follow_each_other_and_end(self, connection: Connection) -> None:
        add_events(connection, 25)

        seen, before, pages = [], None, 0
        while True:
            page = list_events(connection, TABLES, before=before, limit=10)
            seen += [each.id for each in page.events]
            pages, before = pages + 1, page.next_before
            if before is None:
                break

        assert seen == list(range(25, 0, -1))
        assert pages == 3

    @pytest.mark.parametrize(
        ("wanted", "ids"),
        [
            (EventFilter(types=("order.*",)), [8, 6, 4, 2]),
            (EventFilter(types=("mail_sent", "x")), [9, 7, 5, 3, 1]),
            (EventFilter(types=("mail%sent", "mai_sent")), []),
            (EventFilter(key="k0"), [9, 6, 3]),
            (EventFilter(key="k0", tenant="t0"), [6]),
            (EventFilter(first_id=3, last_id=5), [5, 4, 3]),
        ],
    )
    def test_conditions_hold_together(
        self, connection: Connection, wanted: EventFilter, ids: list[int]
    ) -> None:
        add_events(connection, 9)

        page = list_events(connection, TABLES, wanted)

        assert [each.id for each in page.events] == ids
        assert page.next_before is None

    def test_a_span_of_time_is_found_without_reading_the_log(self, connection: Connection) -> None:
        add_events(connection, 60)
        run(connection, "DELETE FROM outbox WHERE id BETWEEN 31 AND 40")
        last = connection.execute(text("SELECT max(created_at) FROM outbox")).scalar_one()

        span = EventFilter(since=last - 32.5 * MINUTE, until=last - 10.5 * MINUTE)
        page = list_events(connection, TABLES, span, limit=1000)

        assert [each.id for each in page.events] == [*range(49, 40, -1), 30, 29, 28]
        assert first_id_since(connection, TABLES, last - 25 * MINUTE) == 41
        assert first_id_since(connection, TABLES, last - 90 * MINUTE) == 1
        assert first_id_since(connection, TABLES, last + MINUTE) is None

    def test_a_page_ends_when_enough_was_looked_at(
        self, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sa_outbox.operations.events.WINDOW", 5)
        monkeypatch.setattr("sa_outbox.operations.events.MAX_EXAMINED", 20)
        add_events(connection, 50)
        wanted = EventFilter(first_id=1, last_id=50, types=("nothing",))

        page = list_events(connection, TABLES, wanted)

        assert page.events == ()
        assert page.next_before == 31

    def test_more_than_a_thousand_are_never_listed(self, connection: Connection) -> None:
        add_events(connection, 1100)
        assert len(list_events(connection, TABLES, limit=10**9).events) == 1000

    def test_one_is_shown_by_either_id_with_its_path(self, connection: Connection) -> None:
        add_events(connection, 3)
        add_listener(connection, "mail", 3)
        dead = bury(connection, 2, errors="""'[{"code": "boom", "message": "no"}]'""")
        outbox = Outbox()

        @outbox.listener("billing", on="*")
        async def charge(event: Any) -> None: ...

        by_id = show_event(connection, TABLES, position=2, listeners=outbox.listeners)
        by_event_id = show_event(
            connection, TABLES, event_id=str(by_id.event_id), listeners=outbox.listeners
        )

        assert by_id == by_event_id
        assert (by_id.payload, by_id.headers) == ('{"n": 2}', "{}")
        assert by_id.summary is not None
        assert by_id.summary.key == "k2"
        assert by_id.listeners["mail"].state == "dead"
        assert by_id.listeners["billing"].state == "pending"
        assert by_id.dead_letters == (dead,)

    def test_one_that_is_gone_from_the_log_is_shown_by_its_dead_letter(
        self, connection: Connection
    ) -> None:
        add_events(connection, 1)
        add_listener(connection, "mail", 1)
        event_id: UUID = connection.execute(text("SELECT event_id FROM outbox")).scalar_one()
        bury(connection, 1)
        run(connection, "DELETE FROM outbox")

        found = show_event(connection, TABLES, event_id=event_id)

        assert (found.position, found.payload, found.event_type) == (None, None, "mail_sent")
        assert found.listeners["mail"].state == "dead"

    def test_one_that_nobody_knows_is_an_error(self, connection: Connection) -> None:
        with pytest.raises(EventNotFound):
            show_event(connection, TABLES, position=1)
        with pytest.raises(EventNotFound):
            show_event(connection, TABLES, event_id=uuid4())
        with pytest.raises(EventNotFound):
            show_event(connection, TABLES)

    def test_a_time_beyond_every_calendar_costs_no_page(self, connection: Connection) -> None:
        add_events(connection, 1)
        run(connection, "ALTER TABLE outbox DROP CONSTRAINT outbox_time_check")
        run(connection, "UPDATE outbox SET run_at = 'infinity'")
        assert list_events(connection, TABLES).events[0].run_at is None


class TestDeadLetters:
    @pytest.fixture(autouse=True)
    def _letters(self, connection: Connection) -> None:
        add_events(connection, 6)
        failure = """'[{"code": "boom", "message": "no"}]'"""
        resolved = {"resolution": "'discarded'", "resolved_at": "clock_timestamp()"}
        self.ids = [
            bury(connection, 1),
            bury(connection, 2, errors=failure, failed_at="clock_timestamp() - interval '1 day'"),
            bury(connection, 3, listener="billing"),
            bury(connection, 4, **resolved),
        ]

    @pytest.mark.parametrize(
        ("options", "numbers"),
        [
            ({}, [2, 1, 0]),
            ({"resolution": "any"}, [3, 2, 1, 0]),
            ({"resolution": "discarded"}, [3]),
            ({"listener": "billing"}, [2]),
            ({"types": ("order.*",)}, [1]),
            ({"key": "k0"}, [2]),
            ({"tenant": "t0", "resolution": "any"}, [3, 1]),
            ({"reason": "crashes"}, []),
            ({"code": "boom"}, [1]),
            ({"until": datetime.now(UTC) - timedelta(hours=1)}, [1]),
            ({"since": datetime.now(UTC) - timedelta(hours=1)}, [2, 0]),
        ],
    )
    def test_conditions_hold_together(
        self, connection: Connection, options: dict[str, Any], numbers: list[int]
    ) -> None:
        wanted = DeadLetterFilter(**options)

        page = list_dead_letters(connection, TABLES, wanted)

        assert [each.id for each in page.letters] == [self.ids[number] for number in numbers]
        assert count_dead_letters(connection, TABLES, wanted) == len(numbers)

    def test_pages_follow_each_other_and_end(self, connection: Connection) -> None:
        first = list_dead_letters(connection, TABLES, limit=2)
        second = list_dead_letters(connection, TABLES, before=first.next_before, limit=2)

        assert [each.id for each in (*first.letters, *second.letters)] == self.ids[2::-1]
        assert second.next_before is None

    def test_one_is_shown_with_its_event_and_errors(self, connection: Connection) -> None:
        run(connection, "DELETE FROM outbox")

        found = show_dead_letter(connection, TABLES, self.ids[1])

        assert found.payload == '{"n": 2}'
        assert [each["code"] for each in found.errors] == ["boom"]
        assert (found.letter.error_code, found.letter.edits) == ("boom", 0)

    def test_one_that_is_not_there_is_an_error(self, connection: Connection) -> None:
        with pytest.raises(DeadLetterNotFound):
            show_dead_letter(connection, TABLES, 10**9)
