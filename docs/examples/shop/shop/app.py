"""The web application. It adds events and calls nobody: ``uvicorn shop.app:app``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated
from uuid import uuid4

import structlog
from fastapi import Depends, FastAPI, Header, HTTPException, Response
from pydantic import BaseModel
from sqlalchemy import func, select, text
from structlog.contextvars import bound_contextvars

from sa_outbox import AsyncOutboxSession, event_context
from sa_outbox.consumer import Consumer
from sa_outbox.contrib.asgi import consuming
from sa_outbox.contrib.fastapi import session_of

from .database import Session, engine
from .events import OrderCancelled, OrderPlaced, order_key
from .listeners import outbox
from .logs import configure_logs
from .models import Invoice, Order
from .settings import settings

configure_logs()
log = structlog.get_logger()

PRICES = {"tea": 450, "coffee": 780, "cup": 1290}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        if settings.consumer_inside:
            await stack.enter_async_context(consuming(Consumer(outbox, engine)))
        yield


async def in_request(
    response: Response,
    x_request_id: Annotated[str | None, Header(pattern=r"^[!-~]{1,100}$")] = None,
) -> AsyncIterator[None]:
    """Every event and every line of the log says which request it comes from."""
    request_id = x_request_id or str(uuid4())
    response.headers["X-Request-ID"] = request_id
    with bound_contextvars(request_id=request_id), event_context(request_id=request_id):
        yield


InSession = Annotated[AsyncOutboxSession, session_of(Session)]
"""Commits before the response is sent, and rolls back if the function raises."""

app = FastAPI(title="Shop", lifespan=lifespan, dependencies=[Depends(in_request)])


class NewOrder(BaseModel):
    email: str
    product: str
    quantity: int = 1


class OrderView(BaseModel):
    id: int
    product: str
    total_cents: int
    cancelled: bool
    invoice: int | None = None
    invoice_void: bool = False


@app.post("/orders", status_code=201)
async def place_order(wanted: NewOrder, session: InSession) -> OrderView:
    if wanted.product not in PRICES:
        raise HTTPException(404, f"we have no {wanted.product}")
    total = PRICES[wanted.product] * wanted.quantity
    order = Order(email=wanted.email, product=wanted.product, total_cents=total)
    session.add(order)
    await session.flush()  # the database has chosen its id
    placed = OrderPlaced(order_id=order.id, email=order.email, total_cents=total)
    session.add_event(placed, key=order_key(order.id))
    log.info("order placed", order_id=order.id)
    return _view(order, None)


@app.delete("/orders/{order_id}")
async def cancel_order(order_id: int, session: InSession) -> OrderView:
    order = await session.get(Order, order_id, with_for_update=True)
    if order is None:
        raise HTTPException(404)
    if order.cancelled_at is None:
        order.cancelled_at = await session.scalar(select(func.now()))
        session.add_event(OrderCancelled(order_id=order.id), key=order_key(order.id))
    return _view(order, await _invoice_of(order, session))


@app.get("/orders/{order_id}")
async def show_order(order_id: int, session: InSession) -> OrderView:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return _view(order, await _invoice_of(order, session))


async def _invoice_of(order: Order, session: AsyncOutboxSession) -> Invoice | None:
    return await session.scalar(select(Invoice).where(Invoice.order_id == order.id))


def _view(order: Order, invoice: Invoice | None) -> OrderView:
    return OrderView(
        id=order.id,
        product=order.product,
        total_cents=order.total_cents,
        cancelled=order.cancelled_at is not None,
        invoice=None if invoice is None else invoice.number,
        invoice_void=invoice is not None and invoice.void,
    )


@app.get("/healthz")
async def is_alive() -> str:
    """For restarts: good while the database is away, since a new process would not help."""
    return "ok"


@app.get("/readyz")
async def is_ready(session: InSession) -> str:
    """For the load balancer: whether requests can be served now."""
    await session.execute(text("SELECT 1"))
    return "ok"
