"""An event that kills its process, in whatever form it comes, while other events keep arriving."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, make_url

from sa_outbox import Outbox
from sa_outbox.operations.operator import Operator
from sa_outbox.operations.resolution import replay_dead_letters
from tests.crash import scene
from tests.crash.fleet import Fleet, fleet
from tests.support import eventually

pytestmark = pytest.mark.long

APP = "tests.crash.deadly_app:outbox"
LEASE = 1.5
MAX_CRASHES = 2
PROMISED = 2 + MAX_CRASHES
"""Deaths: one at full speed, one among few suspects, and those alone."""
DIED = 70
"""What the event has its process exit with."""


def add(dsn: str, *, then: str, wait: str = "0 s") -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox (event_id, event_type, key, payload, run_at) VALUES"
            " (gen_random_uuid(), 'crash.happened', 'deadly', jsonb_build_object('then', %s::text),"
            " CASE WHEN %s::interval > '0 s' THEN clock_timestamp() + %s::interval END)",
            [then, wait, wait],
        )
        connection.execute("SELECT pg_notify('outbox', '')")


def dead(dsn: str, reason: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT id FROM outbox_dead_letters WHERE reason = %s ORDER BY id", [reason]
        ).fetchall()
    return [row[0] for row in rows]


def replay(dsn: str) -> None:
    """As an operator does, once the event is a dead letter."""
    eventually(lambda: dead(dsn, "rejected"), within=90)
    engine = create_engine(make_url(dsn).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        replay_dead_letters(
            connection,
            Outbox().tables,
            dead(dsn, "rejected"),
            Operator(who="a test"),
            channel="outbox",
        )
    engine.dispose()


def is_settled(dsn: str) -> bool:
    """Every event of the log is handled, or a dead letter."""
    return not scene.one(
        dsn,
        "SELECT (SELECT count(*) FROM outbox_listeners WHERE gaps <> '[]' OR last_processed_id <"
        " (SELECT max(id) FROM outbox)) + (SELECT count(*) FROM outbox_ranges)"
        " + (SELECT count(*) FROM outbox_deliveries)",
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("form", "listener"),
    [
        ("new", "by_key"),
        ("new", "in_total"),
        ("new", "with_session"),
        ("new", "in_batches"),
        ("new", "in_partitions"),
        ("new", "queue"),
        ("new", "queue_in_batches"),
        ("scheduled", "by_key"),
        ("scheduled", "in_batches"),
        ("scheduled", "with_session"),
        ("scheduled", "in_partitions"),
        ("scheduled", "queue_in_batches"),
        ("retried", "by_key"),
        ("retried", "in_total"),
        ("retried", "queue"),
        ("replayed", "by_key"),
        ("replayed", "queue"),
    ],
)
def test_a_deadly_event_is_condemned_after_the_promised_deaths_while_others_arrive(
    form: str, listener: str, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADLY_NOTES", str(tmp_path))
    monkeypatch.setenv("DEADLY_LISTENER", listener)
    scene.prepare(dsn)
    with fleet(APP, dsn, lease_duration=LEASE, max_crashes=MAX_CRASHES) as members:
        member = members.start()
        eventually(lambda: member.said("listening"), within=90)
        with scene.writing(dsn, pause=0.03):
            kill(form, dsn)
            scene.write(dsn, 2, key="deadly")  # what is behind it waits for the verdict
            court = Court(dsn, members)
            eventually(court.has_condemned, within=240)
        eventually(lambda: court.has_condemned() and is_settled(dsn), within=90)

    assert [(row[0], row[2], row[4]) for row in scene.dead_letters(dsn) if row[2] == "crashes"] == [
        (listener, "crashes", MAX_CRASHES)
    ]
    assert len(scene.dead_letters(dsn)) == (2 if form == "replayed" else 1), "an innocent one"
    assert court.deaths <= PROMISED


def kill(form: str, dsn: str) -> None:
    """Add the deadly event."""
    match form:
        case "new":
            add(dsn, then="die")
        case "scheduled":
            add(dsn, then="die", wait="500 ms")
        case "retried":
            add(dsn, then="fail_then_die")
        case "replayed":
            add(dsn, then="reject_then_die")
            replay(dsn)


class Court:
    """Counts how many processes died of the event, and starts others in their place. One that can't
    reach the database in time, on a busy machine, ends as well: that is no death."""

    def __init__(self, dsn: str, members: Fleet) -> None:
        self._dsn = dsn
        self._members = members
        self.deaths = 0

    def has_condemned(self) -> bool:
        self.deaths += sum(each.process.poll() == DIED for each in self._members.members)
        self._members.replace_the_dead()
        assert self.deaths <= 3 * PROMISED, "nobody is condemned"
        return bool(dead(self._dsn, "crashes"))
