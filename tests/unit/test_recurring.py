"""Declaring recurring events: everything that is wrong is said there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sa_outbox import Outbox, event_type
from sa_outbox.declare.cron import Tick
from sa_outbox.errors import ConfigError, ContractViolation, InvalidEvent, OutboxError
from sa_outbox.event.context import event_context
from sa_outbox.policy.contract import Contract
from sa_outbox.settings import Limits

TICK = Tick(datetime(2024, 1, 1, 3, tzinfo=UTC), 0)


@event_type("test.purge_asked", version=2)
@dataclass
class PurgeAsked:
    days: int


def row(outbox: Outbox, name: str, tick: Tick = TICK) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(outbox.crons[name].row(tick))
    return made


class TestTheEvent:
    def test_it_says_which_tick_it_is(self) -> None:
        outbox = Outbox()
        outbox.cron("0 3 * * *", "maintenance.purge", time_zone="UTC")

        made = row(outbox, "maintenance.purge")

        assert made["event_type"] == "maintenance.purge"
        assert made["payload"] is None
        assert made["headers"] == {
            "cron": "maintenance.purge",
            "tick": "2024-01-01T03:00:00+00:00",
            "idempotency_key": "maintenance.purge:2024-01-01T03:00:00+00:00",
        }
        assert datetime.fromisoformat(made["headers"]["tick"]) == TICK.at

    def test_it_says_how_many_were_missed(self) -> None:
        outbox = Outbox()
        outbox.cron("0 3 * * *", "maintenance.purge", time_zone="UTC")

        assert row(outbox, "maintenance.purge", Tick(TICK.at, 7))["headers"]["missed"] == "7"

    def test_it_has_all_that_was_declared(self) -> None:
        outbox = Outbox()
        outbox.cron(
            "0 3 * * *",
            "maintenance.purge",
            {"days": 30},
            time_zone="UTC",
            name="purge",
            key="invoices",
            tenant="acme",
            headers={"colour": "blue"},
            priority=5,
        )

        made = row(outbox, "purge")

        assert made["payload"] == {"days": 30}
        assert made["key"] == "invoices"
        assert made["tenant"] == "acme"
        assert made["priority"] == 5
        assert made["headers"]["colour"] == "blue"
        assert made["headers"]["cron"] == "purge"

    def test_each_has_an_id_of_its_own(self) -> None:
        outbox = Outbox()
        outbox.cron("0 3 * * *", "maintenance.purge", time_zone="UTC")

        ids = {UUID(row(outbox, "maintenance.purge")["event_id"]) for _ in range(10)}

        assert len(ids) == 10
        assert {each.version for each in ids} == {7}

    def test_an_object_is_written_with_its_version(self) -> None:
        outbox = Outbox()
        outbox.cron("0 3 * * *", PurgeAsked(days=30), time_zone="UTC")

        made = row(outbox, "test.purge_asked")

        assert made["payload"] == {"days": 30}
        assert made["headers"]["version"] == 2

    def test_it_stays_as_it_was_declared(self) -> None:
        outbox = Outbox()
        payload: dict[str, object] = {"days": 30}
        outbox.cron("0 3 * * *", "maintenance.purge", payload, time_zone="UTC")

        payload["days"] = object()

        assert row(outbox, "maintenance.purge")["payload"] == {"days": 30}

    def test_what_surrounds_the_declaration_is_kept_and_what_surrounds_the_consumer_is_not(
        self,
    ) -> None:
        outbox = Outbox()
        with event_context(tenant="acme", actor_type="system"):
            outbox.cron("0 3 * * *", "maintenance.purge", time_zone="UTC")

        with event_context(tenant="other", actor_type="user", request_id="7"):
            made = row(outbox, "maintenance.purge")

        assert made["tenant"] == "acme"
        assert made["headers"]["actor_type"] == "system"
        assert "request_id" not in made["headers"]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "options",
        [
            {"missed": "some"},
            {"name": ""},
            {"name": "a b"},
            {"name": "a" * 201},
            {"name": 5},
            {"headers": {"cron": "mine"}},
            {"headers": {"tick": "now"}},
            {"headers": {"missed": "1"}},
            {"payload": lambda: 1},
            {"key": lambda: "1"},
            {"time_zone": "Mars/Olympus"},
        ],
    )
    def test_a_wrong_option(self, options: dict[str, Any]) -> None:
        outbox = Outbox()

        with pytest.raises(ConfigError):
            outbox.cron("@daily", "maintenance.purge", **{"time_zone": "UTC", **options})
        assert len(outbox.crons) == 0

    @pytest.mark.parametrize(
        "options",
        [
            {"payload": {1, 2}},
            {"key": ""},
            {"tenant": "a\nb"},
            {"priority": 40_000},
            {"priority": "5"},
            {"headers": {"version": "1"}},
            {"headers": {"a": 5}},
        ],
    )
    def test_what_no_event_may_have(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidEvent):
            Outbox().cron("@daily", "maintenance.purge", time_zone="UTC", **options)

    def test_headers_that_are_too_large_once_the_tick_is_among_them(self) -> None:
        outbox = Outbox(limits=Limits(max_header_bytes=100))
        headers = {"a": "b" * 80}

        with pytest.raises(OutboxError, match="the limit is 100"):
            outbox.cron("@daily", "maintenance.purge", time_zone="UTC", headers=headers)

    def test_a_zone_must_be_said(self) -> None:
        with pytest.raises(TypeError, match="time_zone"):
            Outbox().cron("@daily", "maintenance.purge")  # type: ignore[call-arg]  # the subject

    @pytest.mark.parametrize("event", [PurgeAsked, "not a type", 5])
    def test_something_that_is_no_event(self, event: object) -> None:
        with pytest.raises(OutboxError):
            Outbox().cron("@daily", event, time_zone="UTC")

    def test_two_of_one_name(self) -> None:
        outbox = Outbox()
        outbox.cron("@daily", "maintenance.purge", time_zone="UTC")

        with pytest.raises(ConfigError, match=r"there already is a cron 'maintenance\.purge'"):
            outbox.cron("@hourly", "maintenance.purge", time_zone="UTC")
        outbox.cron("@hourly", "maintenance.purge", time_zone="UTC", name="hourly")

        assert [each.name for each in outbox.crons] == ["maintenance.purge", "hourly"]

    def test_what_the_contract_asks_for_and_the_cron_lacks(self) -> None:
        outbox = Outbox(contract=Contract(required=("tenant", "idempotency_key")))

        with pytest.raises(ContractViolation):
            outbox.cron("@daily", "maintenance.purge", time_zone="UTC")
        outbox.cron("@daily", "maintenance.purge", time_zone="UTC", tenant="acme")


def test_the_policy_decides_what_is_due() -> None:
    outbox = Outbox()
    outbox.cron("@hourly", "a", time_zone="UTC", missed="one")
    outbox.cron("@hourly", "b", time_zone="UTC", missed="skip")
    outbox.cron("@hourly", "c", time_zone="UTC", missed="all")
    last, now = TICK.at, TICK.at + timedelta(hours=3, minutes=30)

    assert [len(each.due(last, now)) for each in outbox.crons] == [1, 0, 3]
