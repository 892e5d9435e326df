"""Events recorded on an entity: its row exists if and only if they exist."""

from __future__ import annotations

import pickle

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session, make_transient

from sa_outbox.errors import NotInstalled
from tests.postgres.conftest import Setup
from tests.support.shop import Item, Order


def an_order(setup: Setup, name: str = "x") -> None:
    """One order in the database, without events."""
    with setup.maker.begin() as session:
        session.add(Order(name=name))


def test_callables_see_what_the_database_gave(setup: Setup) -> None:
    with setup.maker.begin() as session:
        order = Order(name="n")
        order.record_event(
            "placed",
            lambda: {"id": order.id, "dated": order.created_at is not None},
            key=lambda: f"order-{order.id}",
        )
        session.add(order)

    assert setup.rows() == [("placed", {"id": 1, "dated": True})]


def test_an_event_recorded_on_an_unchanged_entity_is_written(setup: Setup) -> None:
    an_order(setup)
    with setup.maker.begin() as session:
        order = session.scalars(select(Order)).one()
        order.record_event("viewed", {"id": order.id})

    assert setup.rows() == [("viewed", {"id": 1})]


def test_an_event_recorded_while_detached_is_written_by_the_next_session(setup: Setup) -> None:
    an_order(setup)
    with setup.maker() as session:
        order = session.scalars(select(Order)).one()
    order.record_event("viewed")
    with setup.maker.begin() as session:
        session.add(order)

    assert setup.types() == ["viewed"]


def test_events_come_along_by_cascade(setup: Setup) -> None:
    with setup.maker.begin() as session:
        order, item = Order(name="x"), Item()
        item.record_event("item", lambda: {"order": item.order_id})
        order.items.append(item)
        session.add(order)

    assert setup.rows() == [("item", {"order": 1})]


@pytest.mark.parametrize("how", ["expunge", "expunge_all", "close"])
def test_a_new_entity_that_leaves_takes_its_event_along(setup: Setup, how: str) -> None:
    order = Order(name="x")
    recorded = order.record_event("e")
    with setup.maker() as session:
        session.add(order)
        if how == "expunge":
            session.expunge(order)
        else:
            getattr(session, how)()

        assert setup.outbox.pending(session) == ()
        session.commit()
    assert setup.types() == []

    with setup.maker.begin() as session:
        session.add(order)
        assert setup.outbox.pending(session)[0].event_id == recorded.event_id
    assert setup.types() == ["e"]


def test_a_new_entity_that_leaves_and_comes_back_has_its_event_once(setup: Setup) -> None:
    order = Order(name="x")
    order.record_event("e")
    with setup.maker.begin() as session:
        session.add(order)
        session.expunge(order)
        session.add(order)

    assert setup.types() == ["e"]


def test_a_stored_entity_that_leaves_takes_its_event_along(setup: Setup) -> None:
    an_order(setup)
    with setup.maker.begin() as session:
        order = session.scalars(select(Order)).one()
        order.record_event("e")
        session.expunge(order)
    assert setup.types() == []

    with setup.maker.begin() as session:
        session.add(order)
    assert setup.types() == ["e"]


def test_a_stored_entity_that_changes_its_session_takes_its_event_along(setup: Setup) -> None:
    an_order(setup)
    with setup.maker() as first, setup.maker() as second:
        order = first.scalars(select(Order)).one()
        order.name = "y"
        order.record_event("renamed")
        first.expunge(order)
        second.add(order)
        second.commit()
        first.commit()

    assert setup.types() == ["renamed"]


def test_a_changed_entity_of_a_closed_session_takes_its_event_along(setup: Setup) -> None:
    an_order(setup)
    with setup.maker() as session:
        order = session.scalars(select(Order)).one()
        order.name = "y"
        order.record_event("renamed")
    with setup.maker.begin() as session:
        session.add(order)

    with setup.maker() as session:
        assert session.scalar(select(Order.name)) == "y"
    assert setup.types() == ["renamed"]


def test_an_entity_made_transient_takes_its_event_to_its_new_row(setup: Setup) -> None:
    an_order(setup)
    with setup.maker.begin() as session:
        order = session.scalars(select(Order)).one()
        order.record_event("copied", lambda: order.id)
        make_transient(order)
    order.id, order.name = None, "copy"
    with setup.maker.begin() as session:
        session.add(order)

    assert setup.rows() == [("copied", 2)]


def test_a_new_orphan_leaves_no_event(setup: Setup) -> None:
    with setup.maker.begin() as session:
        order, item = Order(name="x"), Item()
        order.items.append(item)
        session.add(order)
        item.record_event("item")
        order.items.remove(item)

    assert setup.types() == []


def test_a_flush_that_only_drops_orphans_does_not_swallow_other_events(setup: Setup) -> None:
    an_order(setup)
    with setup.maker.begin() as session:
        order = session.scalars(select(Order)).one()
        item = Item()
        order.items.append(item)
        order.items.remove(item)
        setup.outbox.add(session, "plain")

    assert setup.types() == ["plain"]


@pytest.mark.parametrize("flushed", [True, False])
def test_a_rolled_back_new_entity_added_again_has_its_event_once(
    setup: Setup, flushed: bool
) -> None:
    order = Order(name="x")
    recorded = order.record_event("placed", lambda: order.id)
    with setup.maker() as session:
        session.add(order)
        if flushed:
            session.flush()
        session.rollback()
        session.add(order)
        waiting = setup.outbox.pending(session)
        session.commit()
        stored = session.scalar(select(Order.id))

    assert [each.event_id for each in waiting] == [recorded.event_id]
    assert setup.rows() == [("placed", stored)]


def test_an_event_that_was_given_back_keeps_its_place(setup: Setup) -> None:
    order = Order(name="x")
    order.record_event("1")
    with setup.maker() as session:
        session.add(order)
        session.flush()
        later = Order(name="y")
        later.record_event("2")
        session.rollback()
        session.add_all([later, order])
        session.commit()

    assert setup.types() == ["1", "2"]


def test_a_new_entity_of_a_rolled_back_savepoint_added_again_has_its_event_once(
    setup: Setup,
) -> None:
    order = Order(name="x")
    order.record_event("placed")
    with setup.maker.begin() as session:
        savepoint = session.begin_nested()
        session.add(order)
        session.flush()
        savepoint.rollback()
        session.add(order)

    assert setup.types() == ["placed"]


def test_a_new_entity_deleted_and_rolled_back_has_its_event_when_added_again(
    setup: Setup,
) -> None:
    order = Order(name="x")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        session.flush()
        session.delete(order)
        session.flush()
        session.rollback()
        session.add(order)
        session.commit()
        orders = session.scalar(select(func.count()).select_from(Order))

    assert orders == 1
    assert setup.types() == ["placed"]


def test_a_failed_flush_gives_the_event_back_to_its_entity(setup: Setup) -> None:
    an_order(setup, "taken")
    order = Order(name="taken")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        with pytest.raises(Exception, match="orders_name_key"):
            session.flush()
        session.rollback()
        order.name = "free"
        session.add(order)
        session.commit()

    assert setup.types() == ["placed"]


def test_a_rolled_back_change_leaves_no_event_for_the_next_one(setup: Setup) -> None:
    an_order(setup)
    with setup.maker() as session:
        order = session.scalars(select(Order)).one()
        order.name = "y"
        order.record_event("renamed")
        session.flush()
        session.rollback()
        order.name = "z"
        session.commit()

    assert setup.types() == []


def test_an_event_of_a_rolled_back_savepoint_does_not_come_back_with_its_entity(
    setup: Setup,
) -> None:
    order = Order(name="x")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        session.flush()
        savepoint = session.begin_nested()
        order.record_event("inside")
        setup.flush(session)
        savepoint.rollback()
        session.rollback()
        session.add(order)
        session.commit()

    assert setup.types() == ["placed"]


def test_an_event_of_a_released_savepoint_comes_back_with_its_entity(setup: Setup) -> None:
    order = Order(name="x")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        with session.begin_nested():
            order.record_event("inside")
        session.rollback()
        session.add(order)
        session.commit()

    assert setup.types() == ["placed", "inside"]


def test_an_event_released_into_a_rolled_back_savepoint_does_not_come_back(setup: Setup) -> None:
    order = Order(name="x")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        outer = session.begin_nested()
        with session.begin_nested():
            order.record_event("inside")
        outer.rollback()
        session.rollback()
        session.add(order)
        session.commit()

    assert setup.types() == ["placed"]


def test_a_deleted_entity_can_say_so(setup: Setup) -> None:
    an_order(setup)
    with setup.maker.begin() as session:
        order = session.scalars(select(Order)).one()
        session.delete(order)
        order.record_event("deleted", lambda: {"id": order.id})

    assert setup.rows() == [("deleted", {"id": 1})]


def test_merge_leaves_the_events_with_the_object_that_was_given(setup: Setup) -> None:
    given = Order(name="x")
    given.record_event("e")
    with setup.maker.begin() as session:
        assert session.merge(given) is not given
    assert setup.types() == []

    given.name = "y"
    with setup.maker.begin() as session:
        session.add(given)
    assert setup.types() == ["e"]


def test_bulk_save_leaves_the_events_with_the_object_that_was_given(setup: Setup) -> None:
    given = Order(name="x")
    given.record_event("e")
    with setup.maker.begin() as session, pytest.warns(RuntimeWarning, match="not collect"):
        session.bulk_save_objects([given])
    assert setup.types() == []

    given.name = "y"
    with setup.maker.begin() as session:
        session.add(given)
    assert setup.types() == ["e"]


@pytest.mark.parametrize("rolled_back", [True, False])
def test_a_pickled_entity_keeps_its_events(setup: Setup, rolled_back: bool) -> None:
    order = Order(name="x")
    order.record_event("e", {"x": 1}, key="k")
    if rolled_back:
        with setup.maker() as session:
            session.add(order)
            session.flush()
            session.rollback()

    copy = pickle.loads(pickle.dumps(order))
    with setup.maker.begin() as session:
        session.add(copy)

    assert setup.rows() == [("e", {"x": 1})]


def test_a_lambda_keeps_an_entity_from_being_pickled(setup: Setup) -> None:
    order = Order(name="m")
    order.record_event("e", lambda: 1)

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(order)


def test_a_session_without_hooks_refuses_an_entity_with_events(setup: Setup) -> None:
    order = Order(name="x")
    order.record_event("e")
    with Session(setup.engine) as session:
        session.add(order)
        with pytest.raises(NotInstalled):
            session.commit()
        session.rollback()
        orders = session.scalar(select(func.count()).select_from(Order))

    assert orders == 0
    assert setup.types() == []
    with setup.maker.begin() as session:
        session.add(order)
    assert setup.types() == ["e"]


def test_an_entity_in_a_session_without_hooks_refuses_an_event(setup: Setup) -> None:
    with Session(setup.engine) as session:
        order = Order(name="x")
        session.add(order)

        with pytest.raises(NotInstalled):
            order.record_event("e")
