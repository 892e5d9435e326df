"""The web application: ``flask --app flask_shop.app run``, or any WSGI server."""

from __future__ import annotations

from uuid import uuid4

from flask import Flask, Response, abort, g, request
from sqlalchemy import text

from sa_outbox import event_context, schema
from sa_outbox.contrib.flask import RequestSessions
from sa_outbox.errors import InvalidEvent

from .database import Session, engine, outbox
from .models import Base, Order, Product

app = Flask(__name__)
sessions = RequestSessions(Session, app)  # first of all: its commit comes last


@app.cli.command("prepare")
def prepare() -> None:
    """Create the tables, and the products if there are none. Running it again does no harm."""
    with engine.begin() as connection:
        schema.migrate(connection, outbox.settings.names)
        Base.metadata.create_all(connection)
    with Session.begin() as session:
        if session.get(Product, "tea") is None:
            session.add(Product(name="tea", in_stock=20))


@app.before_request
def enter_context() -> None:
    """The events of a request have its id, and so have those that follow from them."""
    g.request_id = request.headers.get("X-Request-ID") or str(uuid4())
    try:
        g.context = event_context(request_id=g.request_id)
    except InvalidEvent:  # too long, or control characters: the client chose it
        abort(400, "X-Request-ID")
    g.context.__enter__()


@app.after_request
def answer_request_id(response: Response) -> Response:
    response.headers["X-Request-ID"] = g.request_id
    return response


@app.teardown_request
def leave_context(_: BaseException | None) -> None:
    if "context" in g:
        g.pop("context").__exit__(None, None, None)


@app.post("/orders")
def place_order() -> tuple[dict[str, object], int]:
    session, wanted = sessions.current(), request.get_json()
    product = session.get(Product, wanted["product"])
    if product is None:
        abort(404, f"we have no {wanted['product']}")
    order = Order(product=product.name, quantity=int(wanted.get("quantity", 1)))
    session.add(order)
    session.add_event(
        "order.placed",
        lambda: {"order_id": order.id, "product": order.product, "quantity": order.quantity},
        key=product.name,  # orders of one product are served in their order
    )
    session.flush()
    return {"id": order.id, "state": "placed"}, 201


@app.get("/orders/<int:order_id>")
def show_order(order_id: int) -> dict[str, object]:
    order = sessions.current().get(Order, order_id)
    if order is None:
        abort(404)
    return {"id": order.id, "product": order.product, "state": order.state}


@app.get("/readyz")
def is_ready() -> str:
    sessions.current().execute(text("SELECT 1"))
    return "ok"
