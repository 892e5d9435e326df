"""A contract: which fields an event must have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import (
    Contract,
    Event,
    Outbox,
    OutboxSession,
    RecordsEvents,
    event_context,
    event_type,
)
from sa_outbox.errors import ConfigError, ContractViolation, InvalidEvent
from sa_outbox.policy.contract import FIELDS

ALL = Contract(required=FIELDS)  # type: ignore[arg-type]  # the literals, as text
COMPLETE: dict[str, Any] = {
    "tenant": "acme",
    "idempotency_key": "k",
    "headers": {
        "project_id": "p",
        "actor_type": "user",
        "actor_id": "7",
        "request_id": "r",
        "correlation_id": "c",
    },
}


@event_type("contract_test.moved")
@dataclass(frozen=True)
class Moved:
    to: str


def session_of(*required: Any) -> OutboxSession:
    return Outbox(contract=Contract(required=required)).sessionmaker()()


def without(field: str) -> dict[str, Any]:
    if field in COMPLETE:
        return {name: value for name, value in COMPLETE.items() if name != field}
    headers = {name: value for name, value in COMPLETE["headers"].items() if name != field}
    return {**COMPLETE, "headers": headers}


class TestDeclaring:
    @pytest.mark.parametrize(
        "required",
        ["tenant", (), [], None, ("tenant", "org_id"), (7,), ("key",), {"tenant"}, ([],)],
        ids=repr,
    )
    def test_what_is_not_a_tuple_of_known_fields_is_refused(self, required: Any) -> None:
        with pytest.raises(ConfigError):
            Contract(required=required)

    def test_a_list_will_do_and_a_field_counts_once(self) -> None:
        contract = Contract(required=["tenant", "tenant", "actor_id"])  # type: ignore[arg-type]

        assert contract.required == ("tenant", "actor_id")

    @pytest.mark.parametrize(
        "by_type",
        [
            ("project.*",),
            {"project.*": ()},
            {"project.*": "tenant"},
            {"project.*": ("org_id",)},
            {"two words": ("tenant",)},
            {7: ("tenant",)},
            {"!a": ("tenant",)},
        ],
        ids=repr,
    )
    def test_what_is_not_fields_by_event_type_is_refused(self, by_type: Any) -> None:
        with pytest.raises(ConfigError):
            Contract(by_type=by_type)

    def test_one_that_requires_nothing_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="required"):
            Contract()

    @pytest.mark.parametrize("contract", [("tenant",), "tenant", Contract])
    def test_an_outbox_takes_nothing_else(self, contract: Any) -> None:
        with pytest.raises(ConfigError, match="contract"):
            Outbox(contract=contract)


class TestByType:
    CONTRACT = Contract(
        required=("tenant",),
        by_type={
            "project.*": ("project_id", "tenant"),
            "project.moved": ("actor_id",),
            Moved: ("request_id",),
        },
    )

    @pytest.mark.parametrize(
        ("event_type", "fields"),
        [
            ("order.placed", ("tenant",)),
            ("projects", ("tenant",)),
            ("project.made", ("tenant", "project_id")),
            ("project.moved", ("tenant", "project_id", "actor_id")),
            ("contract_test.moved", ("tenant", "request_id")),
        ],
    )
    def test_an_event_needs_the_fields_of_all_that_it_matches(
        self, event_type: str, fields: tuple[str, ...]
    ) -> None:
        session = Outbox(contract=self.CONTRACT).sessionmaker()()
        assert self.CONTRACT.required_of(event_type) == fields

        for field in fields:
            with pytest.raises(ContractViolation) as refused:
                session.add_event(event_type, {}, **without(field))
            assert refused.value.field == field
        given = {field: COMPLETE[field] for field in fields if field in COMPLETE}
        headers = {field: COMPLETE["headers"][field] for field in fields if field not in given}
        session.add_event(event_type, {}, headers=headers, **given)

    def test_nothing_but_types_may_be_given(self) -> None:
        session = Outbox(contract=Contract(by_type={"a.*": ("tenant",)})).sessionmaker()()

        session.add_event("b.c", {})
        with pytest.raises(ContractViolation, match="tenant"):
            session.add_event("a.b", {})

    def test_contracts_that_say_the_same_are_equal(self) -> None:
        first, second = (Contract(by_type={"a": ("tenant",)}) for _ in range(2))

        assert first == second
        assert hash(first) == hash(second)


class TestEvents:
    def test_one_that_has_everything_is_added(self) -> None:
        event = session_of(*FIELDS).add_event("order.placed", {}, **COMPLETE)

        assert event.tenant == "acme"

    @pytest.mark.parametrize("field", FIELDS)
    def test_one_without_a_field_is_refused_by_its_name(self, field: str) -> None:
        session = session_of(*FIELDS)

        with pytest.raises(ContractViolation) as refused:
            session.add_event("order.placed", {}, **without(field))

        assert refused.value.field == field
        assert refused.value.event_type == "order.placed"
        assert field in str(refused.value)
        assert isinstance(refused.value, InvalidEvent)
        assert session.outbox is not None
        assert not session.outbox.has_pending(session)

    @pytest.mark.parametrize("field", [each for each in FIELDS if each != "idempotency_key"])
    def test_the_error_tells_both_ways_to_give_it(self, field: str) -> None:
        with pytest.raises(ContractViolation) as refused:
            session_of(field).add_event("order.placed", {})

        argument = "tenant=" if field == "tenant" else f'headers={{"{field}"'
        assert argument in str(refused.value)
        assert f"event_context({field}=" in str(refused.value)

    def test_an_idempotency_key_comes_from_the_call_only(self) -> None:
        with pytest.raises(ContractViolation, match=r"stable_key") as refused:
            session_of("idempotency_key").add_event("order.placed", {})

        assert "event_context" not in str(refused.value)

    def test_the_context_fulfils_it(self) -> None:
        session = session_of("tenant", "actor_type", "actor_id", "request_id")

        with event_context(tenant="acme", actor_type="user", actor_id="7", request_id="r"):
            event = session.add_event("order.placed", {})

        assert event.tenant == "acme"

    def test_without_a_contract_nothing_is_asked_for(self) -> None:
        assert Outbox().sessionmaker()().add_event("order.placed", {}).tenant is None

    def test_an_empty_header_is_as_none(self) -> None:
        with pytest.raises(ContractViolation, match="request_id"):
            session_of("request_id").add_event("order.placed", {}, headers={"request_id": ""})

    def test_an_actor_type_that_is_none_is_refused(self) -> None:
        with pytest.raises(ContractViolation, match="user, system, api_key"):
            session_of("actor_type").add_event("a.b", {}, headers={"actor_type": "robot"})

    def test_every_way_of_adding_is_checked(self) -> None:
        outbox = Outbox(contract=Contract(required=("tenant",)))

        with pytest.raises(ContractViolation):
            outbox.add(outbox.sessionmaker()(), "order.placed", {})

    def test_it_is_checked_when_a_payload_is_a_callable(self) -> None:
        with pytest.raises(ContractViolation):
            session_of("tenant").add_event("order.placed", lambda: {"n": 1})

    @given(st.sets(st.sampled_from(FIELDS), min_size=1), st.sets(st.sampled_from(FIELDS)))
    def test_exactly_what_lacks_a_field_is_refused(self, asked: set[Any], given: set[str]) -> None:
        headers = {name: COMPLETE["headers"][name] for name in given if name not in COMPLETE}
        event: Event[Any] = Event(
            "order.placed",
            {},
            tenant="acme" if "tenant" in given else None,
            idempotency_key="k" if "idempotency_key" in given else None,
            headers=headers,
        )
        contract = Contract(required=tuple(sorted(asked)))

        if asked <= given:
            contract.check(event)
        else:
            with pytest.raises(ContractViolation) as refused:
                contract.check(event)
            assert refused.value.field in asked - given


class TestEntities:
    def test_one_with_a_contract_of_its_own_refuses_at_the_call(self) -> None:
        class Order(RecordsEvents):
            __outbox_contract__ = Contract(required=("tenant",))

        order = Order()
        with pytest.raises(ContractViolation):
            order.record_event("order.placed", {})

        assert vars(order) == {}
