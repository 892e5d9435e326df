"""Events recorded on an entity, before or after it belongs to a session.

The invariant: an entity's row exists if and only if the events recorded on it exist. An event
recorded on an object without a session waits in the object; once the object is attached, it waits
in the session; if the object's INSERT is undone, it waits in the object again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.orm import object_session

from ..errors import NotInstalled
from ..settings import Limits
from .install import owner_of
from .ledger import LEDGER
from .pending import Pending, make_pending

if TYPE_CHECKING:
    from typing import Unpack

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Mapper

    from ..event.event import Deferred, Event, EventOptions, Json
    from ..policy.admission import Admission
    from ..policy.contract import Contract

T = TypeVar("T")
SLOT = "_sa_outbox_events"
"""Where an object keeps the events recorded on it while it has no session."""


def give_back(pending: Pending) -> None:
    """The entity has no row after all: keep the event with the object, for its next INSERT."""
    pending.dropped = True
    attributes = pending.entity.__dict__
    attributes.pop(LEDGER, None)
    attributes.setdefault(SLOT, []).append(pending.again())


def check_recorded(attributes: dict[str, Any], admission: Admission | None) -> None:
    """Raise for the first event recorded on an object that its outbox does not take."""
    if admission is not None:
        for pending in attributes.get(SLOT, ()):
            admission.admit(pending.event, is_deferred=pending.is_deferred)


class RecordsEvents:
    """Mixin for mapped classes: the entity itself records what happened to it.

    The events are written by the flush that writes the entity, whichever session it is added to.
    """

    __outbox_limits__: ClassVar[Limits] = Limits()
    """Limits for payloads recorded here: an object without a session knows no outbox yet."""

    __outbox_contract__: ClassVar[Contract | None] = None
    """Checked by ``record_event``. The outbox's contract is checked too, but only once the object
    is attached to a session."""

    @overload
    def record_event(
        self,
        event: str,
        /,
        payload: Json | Deferred[Json] = None,
        **options: Unpack[EventOptions],
    ) -> Event[Json]: ...

    @overload
    def record_event(
        self,
        event: type[T],
        /,
        payload: T | Deferred[T],
        **options: Unpack[EventOptions],
    ) -> Event[T]: ...

    @overload
    def record_event(self, event: T, /, **options: Unpack[EventOptions]) -> Event[T]: ...

    def record_event(
        self, event: object, /, payload: object = None, **options: Unpack[EventOptions]
    ) -> Event[Any]:
        """Add an event to the session this entity belongs to now or later; see
        ``session.add_event``."""
        limits = self.__outbox_limits__
        pending = make_pending(event, payload, limits, entity=self, **options)
        if self.__outbox_contract__ is not None:
            self.__outbox_contract__.check(pending.event)
        session = object_session(self)
        if session is None:
            self.__dict__.setdefault(SLOT, []).append(pending)
        else:
            owner_of(session).add_pending(session, pending)
        return pending.event


def _refuse_to_lose(_mapper: Mapper[Any], _connection: Connection, target: object) -> None:
    """Hooks empty an object's slot when it is attached. If it is full at INSERT or UPDATE, the
    object was attached to a session without hooks, or its outbox refused its events; they would
    be lost silently."""
    waiting = target.__dict__.get(SLOT)
    if waiting:
        session = object_session(target)
        with suppress(NotInstalled):
            admission = None if session is None else owner_of(session).admission
            check_recorded(target.__dict__, admission)
        raise NotInstalled(
            f"{type(target).__qualname__} has {len(waiting)} recorded event(s), but its session "
            "has no outbox. Nothing was written; make the session with outbox.sessionmaker(), or "
            "outbox.install() the factory"
        )


for _moment in ("before_insert", "before_update"):
    sqlalchemy_event.listen(RecordsEvents, _moment, _refuse_to_lose, propagate=True)
