"""Whether an outbox would take a dead letter's event as somebody has edited it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.errors import ContractViolation, InvalidEvent, OutboxError
from sa_outbox.event.codec import decode
from sa_outbox.event.event import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_outbox.policy.admission import Admission

    from .dead_letters import DeadLetterDetail


def check_edit(
    admission: Admission,
    detail: DeadLetterDetail,
    payload: object,
    headers: Mapping[str, Any] | None = None,
) -> None:
    """Raise :class:`InvalidEvent` for what ``check_event`` refuses, or a field of the contract that
    new *headers* lack; None keeps the headers.

    What was stored before the outbox had its contract may lack its fields: only an edit that takes
    one away is refused.
    """
    stored: dict[str, Any] = decode(detail.headers)
    edited = _event(detail, payload, stored if headers is None else headers)
    if headers is not None and _keeps_contract(admission, _event(detail, payload, stored)):
        admission.admit(edited, is_deferred=True)
    try:
        admission.check(edited)
    except OutboxError:
        raise
    except Exception as error:
        raise InvalidEvent(
            f"check_event refused the edit: {type(error).__name__}: {error}", field="payload"
        ) from error


def _keeps_contract(admission: Admission, event: Event[Any]) -> bool:
    try:
        admission.admit(event, is_deferred=True)
    except ContractViolation:
        return False
    return True


def _event(detail: DeadLetterDetail, payload: object, headers: Mapping[str, Any]) -> Event[Any]:
    letter = detail.letter
    return Event(
        letter.event_type,
        payload,
        event_id=letter.event_id,
        key=letter.key,
        tenant=letter.tenant,
        headers=headers,
        run_at=letter.run_at,
        priority=letter.priority,
        position=letter.position,
        created_at=letter.event_created_at,
    )
