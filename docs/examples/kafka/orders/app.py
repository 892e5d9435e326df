"""Takes orders: ``uvicorn orders.app:app``.

The relay to Kafka is a process of its own: ``python -m sa_outbox.consume orders.app:outbox``.
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
from sa_outbox.contrib.asgi import EventContextMiddleware
from sa_outbox.contrib.fastapi import session_of
from sa_outbox.relay.kafka import Kafka

url = make_url(os.environ["ORDERS_DATABASE_URL"])
engine = create_async_engine(url.set(drivername="postgresql+asyncpg"), pool_pre_ping=True)
outbox = Outbox()
outbox.relay("orders-to-kafka", Kafka(os.environ["KAFKA"]), on="order.*", to="orders")
Session = outbox.async_sessionmaker(engine)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    customer: Mapped[str]
    product: Mapped[str]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


InSession = Annotated[AsyncOutboxSession, session_of(Session)]
app = FastAPI(title="Orders", lifespan=lifespan)
app.add_middleware(EventContextMiddleware)  # X-Request-ID travels with the event, through Kafka


class NewOrder(BaseModel):
    customer: str
    product: str


@app.post("/orders", status_code=201)
async def place_order(wanted: NewOrder, session: InSession) -> dict[str, int]:
    order = Order(customer=wanted.customer, product=wanted.product)
    session.add(order)
    await session.flush()
    payload = {"order_id": order.id, "customer": order.customer, "product": order.product}
    # The key chooses the partition: orders of one customer keep their order.
    session.add_event("order.placed", payload, key=order.customer)
    return {"order_id": order.id}


@app.get("/readyz")
async def is_ready(session: InSession) -> str:
    await session.execute(text("SELECT 1"))
    return "ok"
