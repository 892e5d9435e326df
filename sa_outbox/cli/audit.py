"""``audit`` and ``durations``: what was done, and how long handlers took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .display import as_json, moment, span, table
from .operator import limit_option, place_of, place_options

if TYPE_CHECKING:
    from uuid import UUID

    from sa_outbox.operations.audit import AuditFilter, AuditPage, AuditRecord

    from .operator import Place


@click.command()
@click.option("--event", "event_id", type=click.UUID, help="Only records of this event_id.")
@click.option("--action", help="What was done, as in paused or failed.")
@click.option("--actor", help="Who did it: an operator's name, or whoever caused the event.")
@click.option("--listener", help="Only records of this listener.")
@click.option("--before", type=int, help="Continue below this id: the end of the last page.")
@limit_option
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def audit(
    *,
    event_id: UUID | None,
    action: str | None,
    actor: str | None,
    listener: str | None,
    before: int | None,
    limit: int,
    as_json_: bool,
    **options: Any,
) -> None:
    """List what was done and by whom, newest first.

    By operators always, by consumers if the outbox has an audit.
    """
    from sa_outbox.operations.audit import AuditFilter, list_audit  # noqa: PLC0415 - not for --help

    wanted = AuditFilter(event_id=event_id, action=action, actor=actor, listener=listener)
    place = place_of(options)
    page = place.ask(lambda c, tables: list_audit(c, tables, wanted, before=before, limit=limit))
    if not page.records and before is None:
        _require_known(place, wanted, page)
    if as_json_:
        click.echo(as_json(page))
        return
    headers = (
        "ID", "WHEN", "ACTION", "TYPE", "LISTENER", "ATTEMPT", "TENANT", "ACTOR", "DETAIL",
        "EVENT ID",
    )  # fmt: skip
    rows = [_row(each) for each in page.records]
    click.echo(table(headers, rows) if rows else "no record")
    _tell_more(page)


def _require_known(place: Place, wanted: AuditFilter, page: AuditPage) -> None:
    """The first *page* is empty: refuse a listener or an action that nobody knows.

    Where to continue is printed all the same: a listener may have been retired so long ago that
    only older records have it. Whoever continues with ``--before`` is not refused.
    """
    from sa_outbox.operations.known_names import check_audit_filter  # noqa: PLC0415 - rarely

    try:
        place.ask(lambda c, tables: check_audit_filter(c, tables, wanted))
    except click.ClickException:
        _tell_more(page)
        raise


def _tell_more(page: AuditPage) -> None:
    if page.next_before is not None:
        click.echo(f"there may be more: --before {page.next_before}", err=True)


def _row(each: AuditRecord) -> list[object]:
    return [
        each.id,
        moment(each.recorded_at),
        each.action,
        each.event_type or "-",
        each.listener or "-",
        each.attempt,
        _whose(each),
        each.actor_id or "-",
        "; ".join(f"{name}: {value}" for name, value in each.detail.items()) or "-",
        str(each.event_id or "-"),
    ]


def _whose(each: AuditRecord) -> str:
    return " / ".join(filter(None, (each.tenant, each.project_id))) or "-"


@click.command()
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def durations(*, as_json_: bool, **options: Any) -> None:
    """How long handlers took, the slowest first.

    By listener and event type, from the newest 20,000 records of the audit: it needs
    Outbox(audit="all"). Otherwise the consumers' metrics have it: sa_outbox_handler_seconds.
    """
    from sa_outbox.operations.durations import handler_durations  # noqa: PLC0415 - not for --help

    seen = place_of(options).ask(handler_durations)
    if as_json_:
        click.echo(as_json(seen))
        return
    headers = ("LISTENER", "TYPE", "ATTEMPTS", "FAILED", "P50", "P95", "P99", "LONGEST")
    rows = [
        [
            each.listener,
            each.event_type or "-",
            each.attempts,
            each.failed,
            *(_took(seconds) for seconds in (each.p50, each.p95, each.p99, each.longest)),
        ]
        for each in seen.found
    ]
    nothing = 'no attempt is recorded with its start and its end: that needs Outbox(audit="all")'
    click.echo(table(headers, rows) if rows else nothing)
    if rows:
        click.echo(f"from {seen.records:,} records, since {moment(seen.since)}", err=True)


def _took(seconds: float) -> str:
    return "<1ms" if seconds < 0.001 else span(seconds)
