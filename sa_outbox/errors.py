"""Every error this package raises on purpose.

::

    OutboxError
    ├── ConfigError                 a setting, a name or an installation is wrong      (ValueError)
    ├── InvalidEvent                an argument of add_event can't be stored           (ValueError)
    │   ├── WrongArgument           it has the wrong Python type                       (TypeError)
    │   ├── UnknownEventType        an object whose class is not registered
    │   ├── CausationTooDeep        events that lead to events, without an end
    │   ├── ContractViolation       a field that the outbox's contract asks for is missing
    │   ├── CrossTenant             a handler added an event for another tenant
    │   └── PayloadError            the payload is not JSON that PostgreSQL can store
    │       └── PayloadTooLarge     it is JSON, and more of it than the limit
    ├── DecodeError                 a stored payload does not fit its event type
    ├── PendingTooLarge             too many bytes wait in one session: flush in between
    ├── NotInstalled                the session has no hooks: the event would be lost
    ├── TransactionEnded            the session's transaction can't take events any more
    ├── NotAtomic                   the event would not share the fate of its data
    ├── DuplicateEvent              its idempotency key is taken; by choice, see on_duplicate
    ├── PayloadNotKnown             a deferred value was asked for before the flush
    ├── EventNotFound               no event has this id, or idempotency key          (LookupError)
    ├── DeadLetterNotFound          no dead letter has this id                        (LookupError)
    ├── NotEdited                   a dead letter was resolved or edited by somebody else
    ├── ListenerNotFound            the database knows no listener of this name       (LookupError)
    ├── ListenerInUse               a consumer works for the listener
    ├── NotSkipped                  the event is settled, being handled, or not there
    ├── EndpointNotFound            there is no webhook endpoint of this name         (LookupError)
    ├── SchemaError                 the tables are missing, old, new or altered
    ├── EmbeddedError               the embedded PostgreSQL can't be had or started
    ├── HandlerMustNotCommit        a handler ended the transaction of the session it was given
    ├── HandlerTimeout              a handler took longer than its listener allows  (TimeoutError)
    ├── NotDrained                  the consumer was stopped before everything was handled
    ├── NotRepartitioned            the partitions of a listener could not be changed in time
    ├── LeaseLost                   another consumer may hold the listener now
    ├── RelayError                  a relay could not forward an event: retried
    │   ├── Undeliverable           the other side will never take it: a dead letter
    │   └── RelayUnavailable        the other side can't be reached: the relay waits
    ├── InvalidWebhook              a received webhook is not what its sender signed   (ValueError)
    └── steering, raised BY handlers
        ├── RetryLater              another attempt, after a delay
        ├── Reject                  no further attempt: a dead letter
        └── SomeFailed              of a batch, these; the others are done

Each class has a ``code``; ``docs/errors.md`` has an entry for each.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID


class OutboxError(Exception):
    """The root of all errors of sa_outbox."""

    code: ClassVar[str] = "outbox"

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled by process pools and task queues. The default would call the class with the
        # finished message alone, and most of them take more.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    cls: type[OutboxError], args: tuple[object, ...], attributes: dict[str, object]
) -> OutboxError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


class ConfigError(OutboxError, ValueError):
    """A setting, a name or the place hooks are installed on is wrong.

    Raised while the program is put together, before any event is touched.
    """

    code = "config"


class InvalidEvent(OutboxError, ValueError):
    """An argument of ``add_event`` can't be stored.

    Raised in the caller's frame, before anything is written: the event was not added, the
    transaction and every event added before are untouched.
    """

    code = "invalid-event"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field
        """The argument at fault: ``event_type``, ``key``, ``run_at``, ..."""


class WrongArgument(InvalidEvent, TypeError):
    """An argument of ``add_event`` has the wrong Python type. See :class:`InvalidEvent`."""

    code = "wrong-argument"


class UnknownEventType(InvalidEvent, TypeError):
    """An object was added whose class has no event type.

    Decorate the class with ``@event_type("order.placed")``, or pass a name and a payload.
    """

    code = "unknown-event-type"


class CausationTooDeep(InvalidEvent):
    """A handler added an event that was caused by an event, and so on, too many times.

    Almost always a handler that adds the type of event it listens to. The event was not added;
    the attempt fails, and the handler's event becomes a dead letter after its attempts.
    """

    code = "causation-too-deep"

    def __init__(self, event_type: str, limit: int) -> None:
        super().__init__(
            f"{event_type!r} would be event {limit + 1} in a chain of events that caused each "
            "other; does a handler add the type of event that it listens to?",
            field="event_type",
        )
        self.limit = limit


class ContractViolation(InvalidEvent):
    """An event lacks a field that the outbox's contract asks for.

    Raised where the event is added: it was not, and the transaction is untouched. Pass the field,
    or add the event inside ``with event_context(...)``.
    """

    code = "contract-violation"

    def __init__(self, event_type: str, field: str, remedy: str) -> None:
        super().__init__(
            f"{event_type!r}: the contract of this outbox asks for {field}. {remedy}. "
            "Nothing was added",
            field=field,
        )
        self.event_type = event_type


class CrossTenant(InvalidEvent):
    """A handler added an event for another tenant than that of the event it handles.

    The event was not added; the attempt fails. Leave ``tenant`` out, and the tenant is passed on.
    Where it is meant: ``with event_context(tenant=..., cross_tenant=True)``.
    """

    code = "cross-tenant"

    def __init__(self, event_type: str) -> None:
        # Names neither tenant: the text is stored with the delivery, which one of them may see.
        super().__init__(
            f"{event_type!r} is for another tenant than the event whose handler adds it. Leave "
            "tenant out to pass it on; if it is meant, add it inside event_context(tenant=..., "
            "cross_tenant=True). Nothing was added",
            field="tenant",
        )
        self.event_type = event_type


class PayloadError(InvalidEvent):
    """A payload (or a header) is not JSON that PostgreSQL can store.

    For a plain payload, raised by ``add_event``: nothing was added. For a callable, raised by the
    flush or commit that evaluates it: nothing of that flush was written, see docs/errors.md.
    """

    code = "payload"

    def __init__(self, message: str, *, path: str = "$", field: str = "payload") -> None:
        super().__init__(f"{field} at {path}: {message}", field=field)
        self.path = path
        """Where in the payload, as in ``$.items[3].price``."""


class PayloadTooLarge(PayloadError):
    """A payload has more bytes than ``max_payload_bytes``.

    Store the large thing elsewhere and put its address into the event, or raise the limit.
    """

    code = "payload-too-large"

    def __init__(self, size: int, limit: int, *, field: str = "payload") -> None:
        super().__init__(f"{size:,} bytes, the limit is {limit:,}", field=field)
        self.size = size
        self.limit = limit


class DecodeError(OutboxError):
    """A stored payload does not fit its event type.

    The event itself is intact in the log. Register an upcaster for its version, or mend the class.
    """

    code = "decode"


class PendingTooLarge(OutboxError):
    """More bytes of events wait in one session than ``max_pending_bytes``.

    The event was not added; those that wait are untouched. Call ``flush()`` from time to time
    while adding very many events in one transaction.
    """

    code = "pending-too-large"


class NotInstalled(OutboxError):
    """The session has no hooks of this outbox: an event added to it would never be written.

    Make the session with ``outbox.sessionmaker(...)``, or call ``outbox.install(...)`` once for
    the existing factory.
    """

    code = "not-installed"


class TransactionEnded(OutboxError):
    """The session's transaction is committed, prepared or rolled back: it can't take events.

    The event was not added. After a failed flush, call ``rollback()`` first, as for any work.
    """

    code = "transaction-ended"


class NotAtomic(OutboxError):
    """The event would not share the fate of the data it speaks of; it was not written.

    Either the connection is in AUTOCOMMIT, or the same flush wrote data to another database.
    """

    code = "not-atomic"


class DuplicateEvent(OutboxError):
    """Another event has the idempotency key of one added with ``on_duplicate="raise"``.

    Raised by the flush or commit that would have written it. Nothing of that flush is kept: roll
    back the transaction, or the savepoint, in which the event was added.
    """

    code = "duplicate-event"

    def __init__(self, message: str, *, idempotency_key: str, duplicate_of: UUID) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        self.duplicate_of = duplicate_of


class PayloadNotKnown(OutboxError):
    """A payload or key given as a callable was read before the flush evaluated it."""

    code = "payload-not-known"


class EventNotFound(OutboxError, LookupError):
    """No event has this id, or this idempotency key.

    It was rolled back, is not committed yet, was never written, or is not kept any more. Nothing
    was changed.
    """

    code = "event-not-found"


class DeadLetterNotFound(OutboxError, LookupError):
    """No dead letter has this id. Nothing was changed."""

    code = "dead-letter-not-found"


class NotEdited(OutboxError):
    """A dead letter was not edited: somebody else has edited or resolved it since it was read.

    Nothing was changed. Read it again, and edit what is there now.
    """

    code = "not-edited"


class ListenerNotFound(OutboxError, LookupError):
    """The database knows no listener of this name. Nothing was changed."""

    code = "listener-not-found"


class ListenerInUse(OutboxError):
    """A consumer works for the listener that was to be retired. Nothing was changed."""

    code = "listener-in-use"


class NotSkipped(OutboxError):
    """The event to skip is settled, being handled, or not there. Nothing was changed."""

    code = "not-skipped"


class EndpointNotFound(OutboxError, LookupError):
    """There is no webhook endpoint of this name. Nothing was changed."""

    code = "endpoint-not-found"


class SchemaError(OutboxError):
    """The tables of the outbox are missing, older, newer or altered.

    When a flush raises it, its transaction is rolled back as for any failed statement. The
    message ends with the command that mends it.
    """

    code = "schema"

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        """What is wrong, one sentence each."""


class EmbeddedError(OutboxError):
    """The embedded PostgreSQL could not be found, made or started."""

    code = "embedded"


class HandlerMustNotCommit(OutboxError):
    """A handler ended the transaction of the session it was given, or left a savepoint open.

    The attempt failed and what it did through the session was rolled back; it is attempted again.
    The session's commit moves the listener's cursor too, so it belongs to the consumer: let the
    handler return, or raise to roll back. For a transaction of its own, make another session.
    """

    code = "handler-must-not-commit"


class HandlerTimeout(OutboxError, TimeoutError):
    """A handler took longer than its listener's ``timeout``.

    It was cancelled (a sync handler's thread was abandoned), its session was rolled back, and the
    attempt counts as failed.
    """

    code = "handler-timeout"


class NotDrained(OutboxError):
    """The consumer was stopped before everything was handled.

    Nothing is lost: what was not handled is there for the next consumer. The message says why it
    was stopped; ``Consumer.reason`` too.
    """

    code = "not-drained"


class NotRepartitioned(OutboxError):
    """The partitions of a listener could not be changed in time; they are as they were.

    Nothing is lost, and consumers go on by themselves. The message says what was waited for.
    """

    code = "not-repartitioned"


class LeaseLost(OutboxError):
    """The lease ended before the outcome was written; another consumer may hold it now.

    Nothing of this attempt was recorded and its session was rolled back; the event is attempted
    again by whoever holds the lease. A blocked event loop or a machine that slept is the usual
    cause: run blocking code in a sync handler, or raise ``lease_duration``.
    """

    code = "lease-lost"


class RetryLater(OutboxError):
    """Raised by a handler: attempt this delivery again, after *delay* if one is given."""

    code = "retry-later"

    def __init__(self, reason: str = "", *, delay: timedelta | None = None) -> None:
        if delay is not None and not isinstance(delay, timedelta):
            raise TypeError(f"RetryLater: delay must be a timedelta, not {delay!r}")
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Reject(OutboxError):
    """Raised by a handler: do not attempt this delivery again; keep it as a dead letter."""

    code = "reject"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SomeFailed(OutboxError):
    """Raised by a handler of batches that has no session: these events failed, the others are done.

    *errors* has an error for each ``event_id`` that failed: ``RetryLater`` and ``Reject`` steer as
    they do when one event is handled. What comes after a failed event of the same key is handled
    again.
    """

    code = "some-failed"

    def __init__(self, errors: Mapping[UUID, BaseException]) -> None:
        super().__init__(f"{len(errors)} events of the batch failed")
        self.errors = dict(errors)


class RelayError(OutboxError):
    """A relay could not forward an event. Retried by the policy of its listener."""

    code = "relay"


class Undeliverable(RelayError):
    """The other side will never take this message, or it can't be made: it is a dead letter.

    ``kind`` is ``"serialization"``, ``"unknown-destination"`` or ``"refused"``.
    """

    code = "undeliverable"

    def __init__(self, reason: str, *, kind: str = "refused") -> None:
        super().__init__(reason)
        self.kind = kind


class RelayUnavailable(RelayError):
    """The other side can't be reached. No attempt is counted: the relay waits, and tries again."""

    code = "relay-unavailable"


class InvalidWebhook(OutboxError, ValueError):
    """A webhook that was received has no signature that fits, or an old one.

    Raised by ``sa_outbox.webhooks.verify``. Answer with 400 or 401, and act on nothing.
    """

    code = "invalid-webhook"
