"""For each of the eight hooks, a short story that goes wrong without it.

Each story is told twice: with all hooks it holds, without its hook it must not. A hook whose
story holds either way is either not needed or not tested.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sa_outbox.errors import NotInstalled
from sa_outbox.producer.hooks import HOOKS
from tests.postgres.conftest import Setup, setup_of
from tests.support.shop import Order

Story = Callable[[Setup], None]


def an_event_recorded_before_add_comes_along(setup: Setup) -> None:
    order = Order(name="o")
    order.record_event("placed")
    with setup.maker.begin() as session:
        session.add(order)
    assert setup.types() == ["placed"]


def an_event_is_written_by_the_flush_that_writes_its_data(setup: Setup) -> None:
    with setup.engine.begin() as connection:  # somebody else's transaction: no commit of ours
        session = setup.make(connection)
        session.add(Order(name="o"))
        setup.outbox.add(session, "placed")
        Session.flush(session)
        session.close()
    assert setup.types() == ["placed"]


def an_event_is_written_by_the_commit_of_a_clean_session(setup: Setup) -> None:
    with setup.maker.begin() as session:
        setup.outbox.add(session, "seen")
    assert setup.types() == ["seen"]


def a_savepoint_keeps_the_order_of_adding(setup: Setup) -> None:
    with setup.maker.begin() as session:
        setup.outbox.add(session, "first")
        with session.begin_nested():
            setup.outbox.add(session, "second")
    assert setup.types() == ["first", "second"]


def an_event_of_a_rolled_back_savepoint_never_comes_back(setup: Setup) -> None:
    order = Order(name="o")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        savepoint = session.begin_nested()
        order.record_event("ghost")
        savepoint.rollback()
        session.rollback()
        session.add(order)
        session.commit()
    assert setup.types() == ["placed"]


def a_commit_with_events_wakes_the_consumers(setup: Setup) -> None:
    with setup.maker.begin() as session:
        setup.outbox.add(session, "placed")
    assert setup.outbox.pokes == 1


def an_expunged_new_entity_keeps_its_events_from_a_session_without_hooks(setup: Setup) -> None:
    order = Order(name="o")
    order.record_event("placed")
    with setup.maker() as session, Session(setup.engine) as plain:
        session.add(order)
        session.expunge(order)
        plain.add(order)
        try:
            plain.commit()
        except NotInstalled:
            return
    raise AssertionError("the row is stored, and its event is lost")


def a_rolled_back_entity_is_added_again_with_its_events(setup: Setup) -> None:
    order = Order(name="o")
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        session.flush()
        session.rollback()
        session.add(order)
        session.commit()
    assert setup.types() == ["placed"]


STORIES: dict[str, Story] = {
    "after_attach": an_event_recorded_before_add_comes_along,
    "after_flush_postexec": an_event_is_written_by_the_flush_that_writes_its_data,
    "before_commit": an_event_is_written_by_the_commit_of_a_clean_session,
    "after_transaction_create": a_savepoint_keeps_the_order_of_adding,
    "after_transaction_end": an_event_of_a_rolled_back_savepoint_never_comes_back,
    "after_commit": a_commit_with_events_wakes_the_consumers,
    "pending_to_transient": an_expunged_new_entity_keeps_its_events_from_a_session_without_hooks,
    "persistent_to_transient": a_rolled_back_entity_is_added_again_with_its_events,
}


def test_every_hook_has_a_story() -> None:
    assert set(STORIES) == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_story_holds_with_all_hooks(engine: Engine, hook: str) -> None:
    STORIES[hook](setup_of("installed", engine))


@pytest.mark.parametrize("hook", HOOKS)
def test_the_story_goes_wrong_without_its_hook(engine: Engine, hook: str) -> None:
    setup = setup_of("installed", engine)
    function = setup.outbox._hooks._functions[hook]
    for cls in (setup.maker.class_, setup.session_class):
        event.remove(cls, hook, function)

    # NotInstalled: an event that no hook took from its entity is noticed at the INSERT.
    with pytest.raises((AssertionError, NotInstalled)):
        STORIES[hook](setup)
