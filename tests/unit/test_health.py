"""Alive and ready: two questions, two answers while the database is away."""

from __future__ import annotations

import pytest

from sa_outbox.consumer import ConsumerSettings
from sa_outbox.monitoring import Health
from sa_outbox.observe import (
    ConsumerStarted,
    ConsumerStopped,
    ConsumerStopping,
    DatabaseAway,
    DatabaseBack,
    LeasesKept,
    Place,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    """Of a consumer that has started."""
    made = Health(ConsumerSettings(), now=clock)
    made.turned()
    made(ConsumerStarted("host:1:a", ("billing",)))
    return made


def test_before_it_starts_it_is_alive_and_not_ready(clock: Clock) -> None:
    health = Health(ConsumerSettings(), now=clock)

    assert health.alive().is_good
    assert health.ready().reasons == ("it has not started yet",)


def test_a_consumer_that_started_is_ready(health: Health) -> None:
    assert health.alive().is_good
    assert health.ready().is_good


def test_a_loop_that_does_not_turn_is_neither(health: Health, clock: Clock) -> None:
    clock.now += 5
    assert health.alive().is_good
    clock.now += 1
    assert health.alive().reasons == ("the event loop has not turned for 6 s",)
    assert not health.ready().is_good

    health.turned()
    assert health.alive().is_good


@pytest.mark.parametrize("where", [Place("horizon"), Place("leases")])
def test_while_the_database_is_away_it_is_alive_and_not_ready(
    health: Health, clock: Clock, where: Place
) -> None:
    health(DatabaseAway(where, "ConnectionRefusedError", 0.1))
    assert health.ready().is_good, "a moment is no outage"
    for _ in range(3):
        clock.now += 2
        health.turned()
        health(DatabaseAway(where, "ConnectionRefusedError", 2.0))

    assert health.alive().is_good
    assert health.ready().reasons == ("the database has been away for 6 s",)

    health(DatabaseBack(where))
    assert health.ready().is_good


@pytest.mark.parametrize(
    "where",
    [Place("LISTEN"), Place("handler", "leases"), Place("queue", "horizon"), Place("crons")],
)
def test_what_it_can_work_without_does_not_count(
    health: Health, clock: Clock, where: Place
) -> None:
    health(DatabaseAway(where, "NotListening", 5.0))
    clock.now += 20
    health.turned()

    assert health.ready().is_good


def test_an_outage_that_nobody_tells_of_any_more_is_over(health: Health, clock: Clock) -> None:
    health(DatabaseAway(Place("horizon"), "ConnectionRefusedError", 5.0))
    clock.now += 41
    health.turned()
    health(LeasesKept((), 0))

    assert health.ready().is_good


def test_leases_that_are_not_renewed_are_a_reason(health: Health, clock: Clock) -> None:
    clock.now += 31
    health.turned()
    assert health.ready().reasons == ("no lease was renewed for 31 s",)

    health(LeasesKept(("billing",), 0))
    assert health.ready().is_good


def test_one_that_stops_is_alive_and_not_ready(health: Health) -> None:
    health(ConsumerStopping("SIGTERM", 25.0))
    assert health.alive().is_good
    assert health.ready().reasons == ("it is stopping",)

    health(ConsumerStopped("host:1:a"))
    assert health.ready().reasons == ("it has stopped",)
