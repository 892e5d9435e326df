"""Bulk methods attach no object: who has recorded events on one is warned, and loses nothing."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from sqlalchemy.orm import Session, sessionmaker

from tests.postgres.conftest import CountingOutbox, Setup
from tests.support.shop import Customer, Order


def recorded(name: str = "x") -> Order:
    order = Order(name=name)
    order.record_event("noted")
    return order


def test_bulk_save_objects_warns_of_recorded_events_which_stay_with_their_objects(
    setup: Setup,
) -> None:
    order = recorded()
    with setup.maker() as session:
        with pytest.warns(RuntimeWarning, match=r"1 of them \(noted\) are not written") as warned:
            session.bulk_save_objects(each for each in [order, Order(name="y")])
        assert session.query(Order).count() == 2
        session.commit()
        assert setup.types() == []

        session.query(Order).delete()
        session.add(order)
        session.commit()

    assert setup.types() == ["noted"]
    assert warned[0].filename == __file__, "where it was called"


@pytest.mark.parametrize("method", ["bulk_insert_mappings", "bulk_update_mappings"])
def test_mappings_that_are_the_attributes_of_entities_warn_too(setup: Setup, method: str) -> None:
    with setup.maker() as session:
        session.add(Order(id=7, name="there"))
        session.commit()
        order = recorded("changed")
        order.id = 7 if "update" in method else 8
        with pytest.warns(RuntimeWarning, match=f"{method} does not collect"):
            getattr(session, method)(Order, iter([vars(order)]))
        session.commit()

        assert session.get_one(Order, order.id).name == "changed"


def test_without_recorded_events_nobody_is_warned(setup: Setup) -> None:
    with setup.maker() as session:
        session.bulk_save_objects([Order(name="x"), Customer(name="c")], preserve_order=False)
        session.bulk_insert_mappings(Order, [{"name": "y"}], return_defaults=True)
        session.commit()

        assert session.query(Order).count() == 2


def test_an_event_recorded_on_an_attached_entity_is_no_reason_to_warn(setup: Setup) -> None:
    with setup.maker() as session:
        order = Order(name="x")
        session.add(order)
        session.flush()
        order.record_event("noted")
        order.name = "y"
        session.bulk_save_objects([order])
        session.commit()

    assert setup.types() == ["noted"]


def test_several_outboxes_on_one_class_warn_once(setup: Setup) -> None:
    maker: sessionmaker[Any] = CountingOutbox().install(setup.maker)

    with maker() as session, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        session.bulk_save_objects([recorded()])

    assert len(warned) == 1


def test_sqlalchemys_own_class_is_left_alone(setup: Setup) -> None:
    before = Session.bulk_save_objects
    outbox = CountingOutbox()
    maker = outbox.install(sessionmaker(setup.engine))

    assert Session.bulk_save_objects is before
    assert maker.class_.bulk_save_objects is not before
    assert maker.class_.bulk_save_objects.__doc__ == before.__doc__
