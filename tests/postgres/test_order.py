"""The order of events between transactions that change one row."""

from __future__ import annotations

import threading

from sqlalchemy import select

from tests.postgres.conftest import Setup
from tests.support.shop import Order


def test_events_of_one_row_are_in_the_order_of_its_changes(setup: Setup) -> None:
    """The row is the truth: each transaction appends its token to it. An event that was written
    before its change would draw its id before it waits for the row, and overtake."""
    with setup.maker.begin() as session:
        session.add(Order(name=""))

    def change(worker: int) -> None:
        for turn in range(12):
            token = f"{worker}.{turn}"
            with setup.maker.begin() as session:
                order = session.scalars(select(Order)).one()
                setup.outbox.add(session, "changed", token, key="order")
                order.name = Order.name + f",{token}"  # in SQL

    workers = [threading.Thread(target=change, args=(each,)) for each in range(6)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()

    with setup.maker() as session:
        changes = (session.scalars(select(Order.name)).one() or "").split(",")[1:]
    assert len(changes) == 72
    assert [payload for _, payload in setup.rows()] == changes
