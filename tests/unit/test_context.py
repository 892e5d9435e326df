"""What surrounds the adding of an event fills in what the call does not say."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import structlog

from sa_outbox import Event, event_context
from sa_outbox.errors import CausationTooDeep, CrossTenant, InvalidEvent, WrongArgument
from sa_outbox.event.causation import DEPTH, TREE, HandledBatch, handled
from sa_outbox.event.context import _context
from sa_outbox.producer.pending import make_pending
from sa_outbox.settings import Limits

FULL = {
    "project_id": "p1",
    "actor_type": "user",
    "actor_id": "7",
    "request_id": "r1",
    "correlation_id": "c1",
}


@pytest.fixture(autouse=True)
def _in_no_context() -> Iterator[None]:
    tokens = [(each, each.set(None)) for each in (handled, _context)]
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()
    for each, token in tokens:
        each.reset(token)  # type: ignore[arg-type]  # its own


def added(**options: Any) -> Event[Any]:
    return make_pending("order.paid", {}, Limits(), **options).event


def placed(tenant: str | None = None, **headers: str | int) -> Event[Any]:
    return Event("order.placed", {}, tenant=tenant, headers=headers)


class TestContext:
    def test_without_one_nothing_is_filled_in(self) -> None:
        event = added()

        assert (event.tenant, dict(event.headers)) == (None, {})

    def test_the_tenant_is_the_event_s_tenant_and_all_others_are_headers(self) -> None:
        with event_context(tenant="acme", **FULL):  # type: ignore[arg-type]  # an actor type
            event = added()

        assert event.tenant == "acme"
        assert dict(event.headers) == FULL

    def test_it_is_part_of_what_is_written(self) -> None:
        with event_context(tenant="acme", request_id="r1"):
            row = make_pending("order.paid", {}, Limits()).row(Limits())

        assert '"tenant":"acme"' in row
        assert '"request_id":"r1"' in row

    def test_what_the_call_says_wins(self) -> None:
        with event_context(tenant="acme", request_id="r1", actor_id="7"):
            event = added(tenant="other", headers={"request_id": "mine"})

        assert event.tenant == "other"
        assert dict(event.headers) == {"request_id": "mine", "actor_id": "7"}

    def test_the_inner_one_wins_and_none_takes_nothing_away(self) -> None:
        with (
            event_context(tenant="acme", actor_id="7", request_id="r1"),
            event_context(tenant=None, actor_id="8", request_id=None),
        ):
            event = added()

        assert event.tenant == "acme"
        assert dict(event.headers) == {"actor_id": "8", "request_id": "r1"}

    def test_it_ends_with_its_block_also_by_an_error(self) -> None:
        with pytest.raises(ZeroDivisionError), event_context(tenant="acme"):
            1 / 0  # noqa: B018 - that is the point

        assert added().tenant is None

    def test_the_outer_one_holds_again_after_the_inner_one(self) -> None:
        with event_context(tenant="acme"):
            with event_context(tenant="other"):
                pass

            assert added().tenant == "acme"

    def test_a_project_belongs_to_its_tenant(self) -> None:
        with event_context(tenant="acme", project_id="p1", request_id="r1"):
            by_hand = added(tenant="other")
            with event_context(tenant="other"):
                nested = added()
            with event_context(tenant="other", project_id="p2"):
                both = added()
            with event_context(tenant="acme"):
                same = added()

        assert dict(by_hand.headers) == {"request_id": "r1"}
        assert dict(nested.headers) == {"request_id": "r1"}
        assert both.headers["project_id"] == "p2"
        assert same.headers["project_id"] == "p1"

    def test_a_project_without_a_tenant_is_any_tenant_s(self) -> None:
        with event_context(project_id="p1"), event_context(tenant="acme"):
            event = added()

        assert (event.tenant, event.headers["project_id"]) == ("acme", "p1")

    def test_a_context_with_a_project_alone_holds_with_and_without_a_tenant(self) -> None:
        with event_context(project_id="p1"):
            projects = [added(tenant=each).headers["project_id"] for each in (None, "acme")]

        assert projects == ["p1", "p1"]

    def test_it_is_that_of_the_call_and_not_of_the_flush(self) -> None:
        with event_context(tenant="acme", request_id="r1"):
            pending = make_pending("order.paid", lambda: {"id": 1}, Limits())

        with event_context(tenant="other", request_id="r2"):
            row = pending.row(Limits())

        assert '"tenant":"acme"' in row
        assert '"request_id":"r1"' in row

    def test_each_task_has_its_own_across_awaits(self) -> None:
        turn = asyncio.Barrier(2)

        async def add_for(tenant: str) -> str | None:
            with event_context(tenant=tenant):
                await turn.wait()
                return added().tenant

        async def both() -> list[str | None]:
            return list(await asyncio.gather(add_for("a"), add_for("b")))

        assert asyncio.run(both()) == ["a", "b"]

    def test_a_new_thread_begins_without_one(self) -> None:
        got: list[str | None] = []
        with event_context(tenant="acme"):
            thread = threading.Thread(target=lambda: got.append(added().tenant))
            thread.start()
            thread.join()

        assert got == [None]

    def test_it_can_be_entered_again(self) -> None:
        context = event_context(tenant="acme")
        with context:
            with context:
                pass
            assert added().tenant == "acme"
        with context:
            assert added().tenant == "acme"

        assert added().tenant is None


class TestValues:
    @pytest.mark.parametrize("field", ["tenant", *FULL])
    @pytest.mark.parametrize("value", [7, UUID(int=1), b"x", True])
    def test_what_is_no_text_is_refused_where_it_is_given(self, field: str, value: Any) -> None:
        with pytest.raises(WrongArgument, match=field) as refused:
            event_context(**{field: value})

        assert refused.value.field == field

    @pytest.mark.parametrize("field", ["tenant", *FULL])
    @pytest.mark.parametrize("value", ["", "a\nb", "\ud800", "x" * 513], ids=ascii)
    def test_text_that_can_not_be_stored_is_refused(self, field: str, value: str) -> None:
        with pytest.raises(InvalidEvent, match=field):
            event_context(**{field: value})  # type: ignore[arg-type]  # that is the point

    @pytest.mark.parametrize("value", ["USER", "robot", "user "])
    def test_an_actor_is_of_one_of_three_types(self, value: Any) -> None:
        with pytest.raises(InvalidEvent, match="user, system, api_key"):
            event_context(actor_type=value)

    @pytest.mark.parametrize("value", [None, 1, "yes"])
    def test_across_tenants_is_a_yes_or_no(self, value: Any) -> None:
        with pytest.raises(WrongArgument, match="cross_tenant"):
            event_context(cross_tenant=value)

    def test_it_is_no_decorator(self) -> None:
        assert not callable(event_context(tenant="acme"))


class TestStructlog:
    def test_what_is_bound_for_the_log_is_taken(self) -> None:
        structlog.contextvars.bind_contextvars(request_id="r1", actor_type="user", path="/orders")

        assert dict(added().headers) == {"request_id": "r1", "actor_type": "user"}

    def test_our_own_context_and_the_call_win(self) -> None:
        structlog.contextvars.bind_contextvars(request_id="log", actor_id="log", project_id="log")
        with event_context(request_id="ours"):
            event = added(headers={"actor_id": "call"})

        assert dict(event.headers) == {
            "request_id": "ours",
            "actor_id": "call",
            "project_id": "log",
        }

    def test_the_tenant_is_never_taken(self) -> None:
        structlog.contextvars.bind_contextvars(tenant="acme")

        assert added().tenant is None

    @pytest.mark.parametrize(("value", "text"), [(UUID(int=1), str(UUID(int=1))), (7, "7")])
    def test_ids_become_text(self, value: object, text: str) -> None:
        structlog.contextvars.bind_contextvars(request_id=value)

        assert added().headers["request_id"] == text

    @pytest.mark.parametrize(
        "value",
        [None, True, ["r1"], {"id": 1}, "", "a\nb", "x" * 513, pytest.param(10**5000, id="long")],
    )
    def test_what_can_not_be_stored_is_left_to_the_log(self, value: object) -> None:
        structlog.contextvars.bind_contextvars(request_id=value, actor_type="robot")

        assert dict(added().headers) == {}

    def test_in_a_handler_nothing_is_taken(self) -> None:
        """What one handler has bound and not unbound would be there for the next event."""
        structlog.contextvars.bind_contextvars(actor_id="of another event")
        handled.set(placed())

        assert "actor_id" not in added().headers

    def test_a_program_without_it_does_not_get_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        structlog.contextvars.bind_contextvars(request_id="r1")
        monkeypatch.delitem(sys.modules, "structlog.contextvars")

        with event_context(actor_id="7"):
            assert dict(added().headers) == {"actor_id": "7"}
        assert "structlog.contextvars" not in sys.modules


class TestHandlers:
    def test_the_handled_event_s_context_is_passed_on(self) -> None:
        handled.set(placed("acme", **FULL, other="not passed on", version=2))

        event = added()

        assert event.tenant == "acme"
        passed = {name: event.headers.get(name) for name in FULL}
        assert passed == FULL
        assert "other" not in event.headers

    def test_a_context_inside_of_the_handler_wins(self) -> None:
        handled.set(placed("acme", actor_id="7", request_id="r1"))

        with event_context(actor_type="system", actor_id="billing", correlation_id="mine"):
            event = added()

        assert event.tenant == "acme"
        assert event.headers["actor_id"] == "billing"
        assert event.headers["request_id"] == "r1"
        assert event.headers["correlation_id"] == "mine"

    def test_a_context_around_the_consumer_does_not_hold_in_its_handlers(self) -> None:
        with event_context(tenant="of the program", actor_id="7"):
            handled.set(placed("acme"))

            event = added()
            with event_context(request_id="r1"):
                nested = added()

        assert (event.tenant, nested.tenant) == ("acme", "acme")
        assert "actor_id" not in event.headers
        assert "actor_id" not in nested.headers

    def test_a_context_that_one_handler_left_open_does_not_hold_in_the_next(self) -> None:
        handled.set(placed("acme"))
        event_context(tenant="acme", actor_id="7", cross_tenant=True).__enter__()
        handled.set(placed("other"))

        event = added()
        with pytest.raises(CrossTenant):
            added(tenant="acme")

        assert event.tenant == "other"
        assert "actor_id" not in event.headers

    @pytest.mark.parametrize("value", [7, "", "a\r\nX-Admin: 1"])
    def test_a_stored_header_that_is_none_is_not_passed_on(self, value: Any) -> None:
        handled.set(placed("acme", request_id=value))

        assert "request_id" not in added().headers

    def test_tasks_of_a_handler_are_in_its_context(self) -> None:
        handled.set(placed("acme"))
        elsewhere = contextvars.copy_context()
        handled.set(None)

        assert elsewhere.run(lambda: added().tenant) == "acme"
        assert added().tenant is None


class TestOtherTenants:
    def test_an_event_for_another_tenant_is_refused(self) -> None:
        handled.set(placed("acme"))

        with pytest.raises(CrossTenant) as refused:
            added(tenant="other")

        assert refused.value.field == "tenant"
        assert refused.value.event_type == "order.paid"

    def test_the_refusal_names_neither_tenant(self) -> None:
        handled.set(placed("acme"))

        with pytest.raises(CrossTenant) as refused:
            added(tenant="other")

        assert "acme" not in str(refused.value)
        assert "'other'" not in str(refused.value)

    def test_a_context_of_another_tenant_is_refused_too(self) -> None:
        handled.set(placed("acme"))

        with event_context(tenant="other"), pytest.raises(CrossTenant):
            added()

    def test_its_own_tenant_by_name_is_not(self) -> None:
        handled.set(placed("acme"))

        assert added(tenant="acme").tenant == "acme"

    def test_the_handler_of_an_event_without_a_tenant_may_add_for_any(self) -> None:
        handled.set(placed())

        assert added(tenant="other").tenant == "other"
        assert added().tenant is None

    def test_outside_of_handlers_any_is_allowed(self) -> None:
        with event_context(tenant="acme"):
            assert added(tenant="other").tenant == "other"

    def test_it_can_be_meant(self) -> None:
        handled.set(placed("acme", project_id="p1", request_id="r1"))

        with event_context(tenant="other", cross_tenant=True):
            event = added()
            third = added(tenant="third")

        assert (event.tenant, third.tenant) == ("other", "third")
        assert "project_id" not in event.headers
        assert event.headers["request_id"] == "r1"
        with pytest.raises(CrossTenant):
            added(tenant="other")

    def test_it_is_meant_in_nested_contexts_as_well(self) -> None:
        handled.set(placed("acme"))

        with event_context(cross_tenant=True), event_context(tenant="other"):
            assert added().tenant == "other"


class TestBatches:
    def test_what_all_events_have_alike_is_passed_on(self) -> None:
        first = placed("acme", request_id="r1", actor_id="7")
        handled.set(HandledBatch([first, placed("acme", request_id="r2", actor_id="7")]))

        event = added()

        assert event.tenant == "acme"
        tree = f"{first.event_id.hex[-12:]}:1"
        assert dict(event.headers) == {"actor_id": "7", DEPTH: 1, TREE: tree}

    def test_another_tenant_than_theirs_is_refused(self) -> None:
        handled.set(HandledBatch([placed("acme"), placed("acme")]))

        with pytest.raises(CrossTenant):
            added(tenant="other")

    def test_of_several_tenants_each_can_be_added_for_and_no_other(self) -> None:
        handled.set(HandledBatch([placed("a"), placed("b")]))

        assert [added(tenant=each).tenant for each in "ab"] == ["a", "b"]
        assert added().tenant is None
        with pytest.raises(CrossTenant):
            added(tenant="c")

    def test_with_one_that_has_no_tenant_any_can_be_added_for(self) -> None:
        handled.set(HandledBatch([placed("a"), placed()]))

        assert added(tenant="c").tenant == "c"
        assert added().tenant is None

    def test_a_context_inside_of_the_handler_holds(self) -> None:
        handled.set(HandledBatch([placed("a"), placed("b")]))

        with event_context(tenant="b"):
            assert added().tenant == "b"

    def test_a_handler_that_empties_its_list_does_not_get_around_it(self) -> None:
        events = [placed("acme", **{DEPTH: 3})]
        handled.set(HandledBatch(events))
        events.clear()

        with pytest.raises(CrossTenant):
            added(tenant="other")
        with pytest.raises(CausationTooDeep):
            make_pending("order.paid", {}, Limits(max_causation_depth=3))
