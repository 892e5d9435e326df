"""The sender: ``uvicorn sender.app:app``, and ``python -m sa_outbox.consume sender.app:outbox``.

The consumer signs and sends. Operators add endpoints and change their secrets with
``sa-outbox endpoints``; consumers notice that by themselves.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import Identity, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sa_outbox import AsyncOutboxSession, Outbox
from sa_outbox.contrib.fastapi import session_of
from sa_outbox.relay import CloudEvents

url = make_url(os.environ["SENDER_DATABASE_URL"])
engine = create_async_engine(url.set(drivername="postgresql+asyncpg"), pool_pre_ping=True)
outbox = Outbox()
outbox.webhooks(
    # The whole event is in the body, its type too: of a request, only id, time and body are signed.
    envelope=CloudEvents(source="/shop", mode="structured"),
    # Only public addresses, and the ports 80 and 443, unless this permits others: to try it here.
    allow=os.environ.get("SENDER_ALLOW", "").split(),
    ports=[int(each) for each in os.environ.get("SENDER_PORTS", "80 443").split()],
)
Session = outbox.async_sessionmaker(engine)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


InSession = Annotated[AsyncOutboxSession, session_of(Session)]
app = FastAPI(title="Sender", lifespan=lifespan)


class NewOrder(BaseModel):
    customer: str
    cents: int


@app.post("/orders", status_code=201)
async def place_order(wanted: NewOrder, session: InSession) -> dict[str, int]:
    order = Order(customer=wanted.customer, cents=wanted.cents)
    session.add(order)
    await session.flush()
    payload = {"order_id": order.id, "customer": order.customer, "cents": order.cents}
    session.add_event("order.placed", payload, key=wanted.customer)
    return {"order_id": order.id}


@app.get("/readyz")
async def is_ready(session: InSession) -> str:
    await session.execute(text("SELECT 1"))
    return "ok"
