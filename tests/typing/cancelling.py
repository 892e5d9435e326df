"""Only type-checked, never run: cancelling events, and asking what became of them.

A line that must be refused carries a ``type: ignore``, as in ``sessions.py``.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.client.cancellation import Answer
from sa_outbox.client.status import EventStatus, ListenerStatus

outbox = Outbox()


def sync_places(session: Session, connection: Connection, event_id: UUID) -> None:
    assert_type(outbox.cancel(session, event_id, reason="why"), dict[str, Answer])
    assert_type(outbox.cancel(connection, str(event_id), listener="exports"), dict[str, Answer])
    status = outbox.status(session, event_id)
    assert_type(status, EventStatus)
    assert_type(status.listeners["exports"], ListenerStatus)
    outbox.status(connection, idempotency_key="k", event_type=Event, tenant="acme")

    outbox.status(session, idempotency_key="k")  # type: ignore[call-overload]
    outbox.cancel(session, event_id, "why")  # type: ignore[call-overload]
    status.listeners["exports"] = status.listeners["imports"]  # type: ignore[index]


async def async_places(session: AsyncSession, connection: AsyncConnection, id_: UUID) -> None:
    assert_type(await outbox.cancel(session, id_), dict[str, Answer])
    assert_type(await outbox.status(connection, id_), EventStatus)
    assert_type(
        await outbox.status(session, idempotency_key="k", event_type="order.placed"), EventStatus
    )


@outbox.listener("exports", on="export.*", order="none", cancellable=True)
async def export(event: Event[Any]) -> None:
    assert_type(event.cancel_requested, bool)
    assert_type(event.result_ref, str | None)
    event.leave_result("s3://exports/7")
    event.leave_result(7)  # type: ignore[arg-type]
    event.result_ref = "s3://exports/7"  # type: ignore[misc]
