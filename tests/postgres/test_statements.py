"""The statements of the write path: how PostgreSQL runs them, on the builders themselves."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, Executable, text

from sa_outbox import Outbox
from sa_outbox.sql.log.events import claim_idempotency_keys, insert_events

TABLES = Outbox().tables


def plan_of(engine: Engine, statement: Executable, **parameters: Any) -> str:
    compiled = statement.compile(dialect=engine.dialect)  # type: ignore[attr-defined]  # a Core statement
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            f"EXPLAIN (COSTS OFF) {compiled}", compiled.construct_params(parameters)
        )
        return "\n".join(row[0] for row in rows)


def document(count: int) -> str:
    return json.dumps(
        [
            {"event_id": str(uuid4()), "event_type": "a", "payload": n, "tenant": "", "key": str(n)}
            for n in range(count)
        ]
    )


def test_inserting_reads_no_table_and_needs_no_sort_to_keep_the_order(engine: Engine) -> None:
    plan = plan_of(engine, insert_events(TABLES), document=document(3))

    assert "Scan on outbox" not in plan
    assert "Function Scan on json_to_recordset added" in plan
    assert "Sort" not in plan  # the ordinality is in order by itself, PostgreSQL knows


def test_ids_are_drawn_in_the_order_of_adding_for_very_many_events(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(insert_events(TABLES), {"document": document(5000)})
        payloads = connection.scalars(text("SELECT payload::int FROM outbox ORDER BY id")).all()

    assert payloads == list(range(5000))


def test_a_claim_finds_a_taken_key_by_the_primary_key(engine: Engine) -> None:
    plan = plan_of(engine, claim_idempotency_keys(TABLES), document=document(3), lifetime=60.0)

    assert "Conflict Arbiter Indexes: outbox_idempotency_keys_pkey" in plan
    assert "Scan on outbox_idempotency_keys" not in plan
    assert "Sort Key: claimed.tenant, claimed.event_type, claimed.key" in plan


def test_an_id_is_drawn_after_the_lock_that_readers_look_for(engine: Engine) -> None:
    """RowExclusiveLock on the parent table, whichever partition the row goes to."""
    with engine.begin() as connection:
        connection.execute(insert_events(TABLES), {"document": document(1)})
        held = connection.scalars(
            text(
                "SELECT mode FROM pg_locks WHERE pid = pg_backend_pid()"
                " AND relation = 'outbox'::regclass"
            )
        ).all()

    assert held == ["RowExclusiveLock"]
