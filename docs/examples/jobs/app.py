"""Background work for a product with many customers: six queues, one outbox, no other server.

The web application calls what is under "In a request". The consumers run the rest:

    python -m sa_outbox.consume app:outbox --monitor-port 9100 --metrics

To see it work, ``python app.py`` adds what two customers may want in a minute.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy import ForeignKey, delete, func, make_url, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sa_outbox import (
    AsyncOutboxSession,
    Category,
    Contract,
    Event,
    NoSecrets,
    Outbox,
    RetryLater,
    RetryPolicy,
    event_context,
    stable_key,
)

log = structlog.get_logger()


class CardDeclined(Exception):
    """The customer's bank says no. It will say so again: no retry."""


payment = RetryPolicy.preset("default").replace(attempts=8, final_on=(CardDeclined,))

outbox = Outbox(
    # What kind of work an event type is: its queue, its retries, how long its keys live.
    categories={
        "payment.*": Category("payment", queue="critical", retry=payment),
        "message.*": "notification",
        "plan.*": "planning",
        "export.*": "export",
        "cleanup.*": "maintenance",
    },
    # What every event must carry. Most of it comes from event_context, entered by a middleware.
    contract=Contract(
        required=("tenant", "actor_type", "actor_id", "request_id"),
        by_type={"plan.*": ("project_id",), "export.*": ("project_id", "idempotency_key")},
    ),
    check_event=NoSecrets(),
    audit="all",
)


# Tables of the product


class Base(DeclarativeBase):
    pass


class Project(Base):
    __tablename__ = "projects"
    id: Mapped[str] = mapped_column(primary_key=True)
    tasks: Mapped[int] = mapped_column(default=0)
    planned: Mapped[bool] = mapped_column(default=False)


class Export(Base):
    __tablename__ = "exports"
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    day: Mapped[str] = mapped_column(primary_key=True)
    lines: Mapped[int | None]


# In a request: each function adds to the transaction of its session, and commits nothing


def charge(session: AsyncOutboxSession, invoice: str, card: str) -> Event:
    return session.add_event("payment.due", {"invoice": invoice, "card": card}, key=invoice)


def plan(session: AsyncOutboxSession, project: Project) -> Event:
    return session.add_event("plan.wanted", {"project": project.id})


async def request_export(session: AsyncOutboxSession, project: Project, day: str) -> Event:
    """Asked for twice on one day, it is made once: neither row nor event is written again."""
    export = {"project_id": project.id, "day": day}
    await session.execute(insert(Export).values(export).on_conflict_do_nothing())
    return session.add_event(
        "export.wanted", export, idempotency_key=stable_key("export", project.id, day)
    )


async def cancel(session: AsyncSession, event_id: UUID) -> dict[str, str]:
    return dict(await outbox.cancel(session, event_id, reason="the customer left"))


# The work. What is done through a session happens exactly once. While much waits, the customers
# (tenants) take turns in each queue, whoever asked first.


@outbox.queue("critical", concurrency=8, timeout=timedelta(seconds=30))
async def take_payment(event: Event) -> None:
    if event.payload["card"] == "declined":
        raise CardDeclined(event.payload["invoice"])
    # A real bank is given event.event_id, so that a second attempt is no second payment.
    log.info("payment taken", invoice=event.payload["invoice"])


@outbox.queue("notifications", concurrency=20, timeout=timedelta(seconds=10))
async def send_message(event: Event) -> None:
    if event.payload.get("mailbox") == "full" and event.attempt == 1:
        raise RetryLater("the mailbox is full", delay=timedelta(minutes=20))
    log.info("message sent", to=event.payload["to"])


@outbox.queue("planning", concurrency=2)
async def make_plan(event: Event, session: AsyncOutboxSession) -> None:
    project = await session.get_one(Project, event.payload["project"])
    if project.tasks < 0:
        raise ValueError("a project has a number of tasks")
    project.planned = True
    session.add_event("message.wanted", {"to": "the team", "about": project.id})


# Whatever one customer asks for, every second export is somebody else's.
exports = outbox.queue("exports", concurrency=2, tenant_concurrency=1, timeout=timedelta(hours=1))


@exports.on("export.wanted")
async def write_export(event: Event, session: AsyncOutboxSession) -> None:
    export = await session.get_one(Export, event.payload)
    for number in range(1, 4):
        if event.cancel_requested:
            return
        export.lines = number  # a real one writes a part of the file here
        await asyncio.sleep(0)
    event.leave_result(f"exports/{export.project_id}/{export.day}.csv")
    session.add_event("message.wanted", {"to": "whoever asked", "about": f"export {export.day}"})
    log.info("export written", lines=export.lines)


@exports.on("export.expired")
async def remove_export(event: Event, session: AsyncSession) -> None:
    await session.execute(delete(Export).filter_by(**event.payload))


@outbox.queue("maintenance")
async def clean_up(event: Event, session: AsyncSession) -> None:
    unused = await session.scalar(select(func.count()).where(Export.lines.is_(None)))
    log.info("cleaned up", unused=unused, tick=event.headers["tick"])


@outbox.queue("default")
async def do_other_work(event: Event) -> None:
    log.info("nothing special", about=event.payload)


outbox.cron(
    "0 3 * * *",
    "cleanup.nightly",
    time_zone="Europe/Berlin",
    tenant="operations",
    headers={"actor_type": "system", "actor_id": "cron", "request_id": "nightly"},
)


async def try_it() -> None:
    url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url)
    sessions = outbox.async_sessionmaker(engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    for tenant, card, messages in (("large", "declined", 5000), ("small", "good", 3)):
        user = event_context(
            tenant=tenant,
            project_id=f"{tenant}-1",
            actor_type="user",
            actor_id="ada",
            request_id=f"import-{tenant}",
        )
        with user:
            async with sessions.begin() as session:
                project = await session.merge(Project(id=f"{tenant}-1", tasks=3))
                await session.flush()
                plan(session, project)
                await request_export(session, project, "monday")
                charge(session, f"invoice-{tenant}", card)
                for number in range(messages):
                    session.add_event("message.wanted", {"to": f"{tenant} {number}"})
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(try_it())
