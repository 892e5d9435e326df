"""Only type-checked, never run: contracts, contexts and categories.

A line that must be refused carries a ``type: ignore``, as in ``sessions.py``.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from sa_outbox import Category, Contract, Outbox, RetryPolicy, event_context, event_type


@event_type("typing.report_made")
@dataclass(frozen=True)
class ReportMade:
    number: int


def contracts() -> None:
    Outbox(contract=Contract(required=("tenant", "actor_type", "idempotency_key")))

    Outbox(contract=("tenant",))  # type: ignore[arg-type]
    Contract(required=("org_id",))  # type: ignore[arg-type]
    Contract(("tenant",))  # type: ignore[call-arg]


def contexts() -> None:
    with event_context(tenant="acme", actor_type="api_key", cross_tenant=True) as nothing:
        assert_type(nothing, None)

    event_context(tenant=7)  # type: ignore[arg-type]
    event_context(actor_type="robot")  # type: ignore[arg-type]
    event_context("acme")  # type: ignore[call-arg]
    event_context(org="acme")  # type: ignore[call-arg]


def categories() -> None:
    mine = Category("mine", queue="critical", retry=RetryPolicy(), key_lifetime=timedelta(1))
    by_name: dict[str, str] = {"report.*": "export"}
    by_class: dict[type[ReportMade], Category] = {ReportMade: mine}
    outbox = Outbox(categories={"report.*": "export", "order.reminder": mine})
    Outbox(categories={"report.*": "export", ReportMade: mine})
    Outbox(categories=by_name)
    Outbox(categories=by_class)
    assert_type(outbox.category_of("report.made"), Category)
    assert_type(outbox.category_of(ReportMade), Category)

    Outbox(categories=["report.*"])  # type: ignore[arg-type]
    Outbox(categories={"report.*": 7})  # type: ignore[dict-item]
    Outbox(tenant_setting=7)  # type: ignore[arg-type]
