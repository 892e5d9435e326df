"""Whether an outbox would take a dead letter's event as somebody has edited it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.errors import ContractViolation, DecodeError, InvalidEvent, OutboxError
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
    one away is refused. Stored headers that can't be read have none to take away, and can't be
    kept.
    """
    stored = _stored(detail)
    given = stored if headers is None else headers
    if given is None:
        raise InvalidEvent(
            "the stored headers can't be read, so they can't be kept: give new ones too, with "
            f"sa-outbox dead-letters edit {detail.letter.id} --headers",
            field="headers",
        )
    edited = _event(detail, payload, given)
    if headers is not None and stored is not None:
        _check_contract(admission, edited, _event(detail, payload, stored))
    try:
        admission.check(edited)
    except OutboxError:
        raise
    except Exception as error:
        raise InvalidEvent(
            f"check_event refused the edit: {type(error).__name__}: {error}", field="payload"
        ) from error


def _stored(detail: DeadLetterDetail) -> dict[str, Any] | None:
    """The stored headers; None: they can't be read."""
    try:
        headers = decode(detail.headers)
    except DecodeError:
        return None
    return headers if isinstance(headers, dict) else None


def _check_contract(admission: Admission, edited: Event[Any], before: Event[Any]) -> None:
    try:
        admission.admit(before, is_deferred=True)
    except ContractViolation:
        return
    admission.admit(edited, is_deferred=True)


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
