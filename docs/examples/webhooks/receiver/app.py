"""The receiver: ``uvicorn receiver.app:app``. Its database has an outbox, too: for the inbox.

Two things make it safe. The signature: who sent a message, and that it was not changed. The inbox:
a message that comes again has no second effect.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from fastapi import FastAPI, HTTPException, Request
from sqlalchemy import make_url, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sa_outbox import Outbox
from sa_outbox.errors import InvalidWebhook
from sa_outbox.webhooks import Verified, verify

MAX_BYTES = 256 * 1024
# One secret a line. It is read for each message, so that a rotation needs no restart.
SECRETS = Path(os.environ["RECEIVER_SECRETS_FILE"])

log = structlog.get_logger()
url = make_url(os.environ["RECEIVER_DATABASE_URL"])
engine = create_async_engine(url.set(drivername="postgresql+asyncpg"), pool_pre_ping=True)
Session = async_sessionmaker(engine)
inbox = Outbox().inbox


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"

    customer: Mapped[str] = mapped_column(primary_key=True)
    points: Mapped[int]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(title="Receiver", lifespan=lifespan)


@app.post("/hooks/shop", status_code=204)
async def receive(request: Request) -> None:
    """2xx after the commit; also for one that was seen before, so that it is not sent again."""
    message = await verified(request)
    async with (
        Session.begin() as session,
        inbox.once(session, message.message_id, consumer="points") as first,
    ):
        if first:
            await act(message.json(), session)
    log.info("new" if first else "seen before", id=message.message_id)


async def verified(request: Request) -> Verified:
    """The raw body is what was signed: JSON that is encoded again would have other bytes."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413)
    try:
        message = verify(body, request.headers, SECRETS.read_text().split())
        message.json()
    except InvalidWebhook as error:
        log.warning("refused", why=str(error))
        raise HTTPException(400, str(error)) from error
    return message


async def act(event: object, session: AsyncSession) -> None:
    """A type that is not known is no error: the sender may have new ones."""
    match event:
        case {"type": "order.placed", "data": {"customer": str(customer), "cents": int(cents)}}:
            points = cents // 100
            statement = insert(Account).values(customer=customer, points=points)
            more = {"points": Account.points + points}
            await session.execute(
                statement.on_conflict_do_update(index_elements=["customer"], set_=more)
            )


@app.get("/accounts/{customer}")
async def show_account(customer: str) -> dict[str, int]:
    async with Session() as session:
        account = await session.get(Account, customer)
    return {"points": 0 if account is None else account.points}


@app.get("/readyz")
async def is_ready() -> str:
    async with Session() as session:
        await session.execute(text("SELECT 1"))
    return "ok"
