"""Every error this package raises on purpose.

::

    OutboxError
    ├── ConfigError                 a setting, a name or an installation is wrong      (ValueError)
    ├── InvalidEvent                an argument of add_event can't be stored           (ValueError)
    │   ├── WrongArgument           it has the wrong Python type                       (TypeError)
    │   ├── UnknownEventType        an object whose class is not registered            (TypeError)
    │   ├── CausationTooDeep        handlers keep adding events that cause more events
    │   ├── CausationTooWide        one event has caused too many events
    │   ├── ContractViolation       a field that the outbox's contract requires is missing
    │   ├── SecretFound             a payload or header seems to hold a secret; opt-in
    │   ├── CrossTenant             a handler added an event for another tenant
    │   └── PayloadError            the payload is not JSON that PostgreSQL can store
    │       └── PayloadTooLarge     it is valid JSON but exceeds the size limit
    ├── DecodeError                 a stored payload does not fit its event type
    ├── PendingTooLarge             too many bytes wait in one session: flush more often
    ├── NotInstalled                the session has no hooks: the event would be lost
    ├── TransactionEnded            the session's transaction can't accept events anymore
    ├── NotAtomic                   the event and its data would not commit together
    ├── NotWritten                  a rule or trigger on the log dropped events
    ├── DuplicateEvent              its idempotency key is taken; opt-in, see on_duplicate
    ├── PayloadNotKnown             a deferred value was read before the flush
    ├── EventNotFound               no event has this id, or idempotency key          (LookupError)
    ├── NotFinished                 a listener has not handled an event in time      (TimeoutError)
    ├── DeadLetterNotFound          no dead letter has this id                        (LookupError)
    ├── NotEdited                   a dead letter was resolved or edited by somebody else
    ├── ListenerNotFound            the database knows no listener of this name       (LookupError)
    ├── ListenerInUse               a consumer works for the listener
    ├── NotSkipped                  the event is settled, being handled, or missing
    ├── NotErased                   the event may be being handled right now
    ├── EndpointNotFound            there is no webhook endpoint of this name         (LookupError)
    ├── SchemaError                 the tables are missing, old, new or altered
    ├── EmbeddedError               the embedded PostgreSQL can't be found or started
    ├── HandlerMustNotCommit        a handler ended the transaction of the session it was given
    ├── HandlerTimeout              a handler took longer than its listener allows  (TimeoutError)
    ├── NoHandler                   no handler of a queue takes events of this type
    ├── NotDrained                  a drain ended before everything was handled
    ├── LifespanError               a lifespan raised, or took too long to end
    ├── NotRepartitioned            the partitions of a listener could not be changed in time
    ├── LeaseLost                   another consumer may hold the listener now
    ├── RelayError                  a relay could not forward an event: retried
    │   ├── Undeliverable           the receiver will never accept it: a dead letter
    │   └── RelayUnavailable        the receiver can't be reached: the relay waits
    ├── InvalidWebhook              a received webhook is not what its sender signed   (ValueError)
    └── steering, raised BY handlers
        ├── RetryLater              another attempt, after a delay
        ├── Reject                  no further attempt: a dead letter
        └── SomeFailed              these events of a batch failed; the others are done

Each class has a ``code``; ``docs/errors.md`` has an entry for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence


class OutboxError(Exception):
    """Base class of all sa_outbox errors."""

    code: ClassVar[str] = "outbox"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are pickled by process pools and task queues. The default calls the class with the
        # finished message alone, and most of these classes take more arguments.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    cls: type[OutboxError], args: tuple[object, ...], attributes: dict[str, object]
) -> OutboxError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


def _check_text(cls: str, **values: object) -> None:
    """Raise TypeError, which fails the attempt: what was meant is not known."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise TypeError(f"{cls}: {name} must be a str, not {type(value).__name__}")


class ConfigError(OutboxError, ValueError):
    """A setting, a name, or the target that hooks are installed on is wrong.

    Raised while the program is being set up, before any event is touched; and for a session that
    has no engine for the outbox's table, when it is used.
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
        """The invalid argument: ``event_type``, ``key``, ``run_at``, ..."""


class WrongArgument(InvalidEvent, TypeError):
    """An argument of ``add_event`` has the wrong Python type. See :class:`InvalidEvent`."""

    code = "wrong-argument"


class UnknownEventType(InvalidEvent, TypeError):
    """An object was added whose class has no event type.

    Decorate the class with ``@event_type("order.placed")``, or pass a name and a payload.
    """

    code = "unknown-event-type"


class CausationTooDeep(InvalidEvent):
    """Handlers have caused a chain of events that is too long.

    Almost always a handler that adds the event type it listens to. The event was not added; the
    attempt fails, and the event being handled becomes a dead letter once its attempts are used up.
    """

    code = "causation-too-deep"

    def __init__(self, event_type: str, limit: int) -> None:
        super().__init__(
            f"{event_type!r} would be event {limit + 1} in a chain of events that caused each "
            "other; does a handler add the type of event that it listens to?",
            field="event_type",
        )
        self.limit = limit


class CausationTooWide(InvalidEvent):
    """Handlers have added too many events that all go back to one event.

    Almost always a handler that adds more than one event of the type it listens to. The event was
    not added; the attempt fails, and the event being handled becomes a dead letter once its
    attempts are used up.
    """

    code = "causation-too-wide"

    def __init__(self, event_type: str, limit: int) -> None:
        super().__init__(
            f"{event_type!r} would be one of more than {limit:,} events that handlers have added "
            "because of one event; do they add the types of events that they listen to?",
            field="event_type",
        )
        self.limit = limit


class ContractViolation(InvalidEvent):
    """An event lacks a field that the outbox's contract requires.

    Raised where the event is added: it was not added, and the transaction is untouched. Pass the
    field, or add the event inside ``with event_context(...)``.
    """

    code = "contract-violation"

    def __init__(self, event_type: str, field: str, remedy: str) -> None:
        super().__init__(
            f"{event_type!r}: this outbox's contract requires {field}. {remedy}. Nothing was added",
            field=field,
        )
        self.event_type = event_type


class SecretFound(InvalidEvent):
    """A payload or a header seems to hold a secret; from the check ``NoSecrets``.

    Nothing was written: events are kept, shown to operators and forwarded. Put a reference to the
    secret in the event; if the field is none, list its name in ``NoSecrets(allow=...)``.
    """

    code = "secret-found"

    def __init__(self, event_type: str, path: str, *, field: str) -> None:
        super().__init__(
            f"{event_type!r}: {field} at {path} looks like a secret. Add a reference to it "
            "instead, or allow the field: NoSecrets(allow=...). Nothing was written",
            field=field,
        )
        self.event_type = event_type
        self.path = path
        """Path to the value, such as ``$.customer.password``."""


class CrossTenant(InvalidEvent):
    """A handler added an event for a different tenant than the event it is handling.

    The event was not added; the attempt fails. Omit ``tenant`` to pass on the handled event's
    tenant. If a different tenant is intended, use
    ``with event_context(tenant=..., cross_tenant=True)``.
    """

    code = "cross-tenant"

    def __init__(self, event_type: str) -> None:
        # Names neither tenant: the text is stored with the delivery, which either tenant may see.
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
        """Path to the value in the payload, such as ``$.items[3].price``."""


class PayloadTooLarge(PayloadError):
    """A payload is larger than ``max_payload_bytes``.

    Store the large object elsewhere and put its address in the event, or raise the limit.
    """

    code = "payload-too-large"

    def __init__(self, size: int, limit: int, *, field: str = "payload") -> None:
        super().__init__(f"{size:,} bytes, the limit is {limit:,}", field=field)
        self.size = size
        self.limit = limit


class DecodeError(OutboxError):
    """A stored payload does not fit its event type.

    The event itself is intact in the log. Register an upcaster for its version, or fix the class.
    """

    code = "decode"


class PendingTooLarge(OutboxError):
    """The events waiting in one session exceed ``max_pending_bytes``.

    The event was not added; those already waiting are untouched. Call ``flush()`` from time to time
    when adding very many events in one transaction.
    """

    code = "pending-too-large"


class NotInstalled(OutboxError):
    """The session has no hooks of this outbox: an event added to it would never be written.

    Make the session with ``outbox.sessionmaker(...)``, or call ``outbox.install(...)`` once for
    the existing factory.
    """

    code = "not-installed"


class TransactionEnded(OutboxError):
    """The session's transaction is committed, prepared or rolled back: it can't accept events.

    The event was not added. After a failed flush, call ``rollback()`` first, as for any other work.
    """

    code = "transaction-ended"


class NotAtomic(OutboxError):
    """The event would not commit together with its data; it was not written.

    Either the connection is in AUTOCOMMIT, or the same flush wrote data to another database.
    """

    code = "not-atomic"


class NotWritten(OutboxError):
    """The INSERT was accepted but wrote fewer events than it was given.

    A rule or trigger on the log dropped them. The transaction must not be committed: roll it back.
    ``sa-outbox doctor`` names the rule or trigger.
    """

    code = "not-written"

    def __init__(self, log: str, *, expected: int, written: int) -> None:
        super().__init__(
            f"{log} has taken {written} of {expected} events: a rule or trigger on it swallows the "
            "others. Roll back; sa-outbox doctor names it"
        )
        self.expected = expected
        self.written = written


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
    """No event has this id or idempotency key.

    It was rolled back, is not committed yet, was never written, or has been deleted. Nothing was
    changed.
    """

    code = "event-not-found"


class NotFinished(OutboxError, TimeoutError):
    """A listener had not finished an event when the time of ``outbox.wait`` was up.

    Nothing was changed: the event is delivered as if nobody had waited.
    """

    code = "not-finished"

    # Not an argument: a TimeoutError with an ``__init__`` of its own does not survive pickling.
    state: str = "unknown"
    """Its state then, as in ``outbox.status``."""


class DeadLetterNotFound(OutboxError, LookupError):
    """No dead letter has this id. Nothing was changed."""

    code = "dead-letter-not-found"


class NotEdited(OutboxError):
    """A dead letter was not edited: someone else edited or resolved it after it was read.

    Nothing was changed. Read it again and edit the current version.
    """

    code = "not-edited"


class ListenerNotFound(OutboxError, LookupError):
    """The database knows no listener of this name. Nothing was changed."""

    code = "listener-not-found"


class ListenerInUse(OutboxError):
    """A consumer is working on the listener that was to be retired. Nothing was changed."""

    code = "listener-in-use"


class NotSkipped(OutboxError):
    """The event to skip is settled, being handled, or missing. Nothing was changed."""

    code = "not-skipped"


class NotErased(OutboxError):
    """The event to erase may be being handled right now. Nothing was changed."""

    code = "not-erased"


class EndpointNotFound(OutboxError, LookupError):
    """There is no webhook endpoint of this name. Nothing was changed."""

    code = "endpoint-not-found"


class SchemaError(OutboxError):
    """The tables of the outbox are missing, older, newer or altered.

    When a flush raises it, its transaction is rolled back as for any failed statement. The
    message ends with the command that fixes it.
    """

    code = "schema"

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems)
        """What is wrong, one sentence each."""


class EmbeddedError(OutboxError):
    """The embedded PostgreSQL could not be found, created or started."""

    code = "embedded"


class HandlerMustNotCommit(OutboxError):
    """A handler ended the transaction of the session it was given, or left a savepoint open.

    The attempt failed and everything it did through the session was rolled back; it will be
    retried. The session's commit also moves the listener's cursor, so it belongs to the consumer:
    let the handler return, or raise to roll back. For a transaction of its own, the handler must
    create another session.
    """

    code = "handler-must-not-commit"


class HandlerTimeout(OutboxError, TimeoutError):
    """A handler took longer than its listener's ``timeout``.

    It was cancelled (a sync handler's thread was abandoned), its session was rolled back, and the
    attempt counts as failed.
    """

    code = "handler-timeout"


class NoHandler(OutboxError):
    """A queue with several handlers has an event whose type none of them takes.

    It came to the queue while one did, and waited for a retry or its time. It is attempted again
    like any event that failed, for a deployment may bring the handler; then it is a dead letter.
    """

    code = "no-handler"

    def __init__(self, listener: str, event_type: str) -> None:
        super().__init__(f"no handler of the queue {listener!r} takes {event_type!r}")
        self.listener = listener
        self.event_type = event_type


class NotDrained(OutboxError):
    """A drain ended before everything was handled.

    The consumer was stopped, or a relay's receiver is unreachable. Nothing is lost: the next
    consumer handles the rest. The message gives the reason, and so does ``Consumer.reason``.
    """

    code = "not-drained"

    def __init__(self, message: str, *, waiting: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.waiting: dict[str, str] = dict(waiting or {})
        """Relays whose receiver is unreachable, each with the class of its last error. If there are
        any, everything else is handled."""


class LifespanError(OutboxError):
    """A function declared with ``@outbox.lifespan`` raised, or took too long to end.

    At the start: no lease was claimed, no handler was called. At the end: every handler had ended
    and the leases were released. What it raised is the ``__cause__``.
    """

    code = "lifespan"

    def __init__(self, message: str, *, lifespan: str) -> None:
        super().__init__(message)
        self.lifespan = lifespan
        """The name of the function."""


class NotRepartitioned(OutboxError):
    """A listener could not be repartitioned in time; its partitions are unchanged.

    Nothing is lost, and consumers continue by themselves. The message names what the command was
    waiting for.
    """

    code = "not-repartitioned"


class LeaseLost(OutboxError):
    """The lease ended before the outcome was written; another consumer may hold it now.

    Nothing of this attempt was recorded and its session was rolled back; the next holder of the
    lease attempts the event again. The usual cause is a blocked event loop or a machine that was
    suspended: run blocking code in a sync handler, or raise ``lease_duration``.
    """

    code = "lease-lost"


class RetryLater(OutboxError):
    """Raised by a handler: attempt this delivery again, after *delay* if one is given."""

    code = "retry-later"

    def __init__(self, reason: str = "", *, delay: timedelta | None = None) -> None:
        if isinstance(reason, timedelta):
            raise TypeError("RetryLater: pass the delay by name, RetryLater(delay=...)")
        _check_text("RetryLater", reason=reason)
        if delay is not None and not isinstance(delay, timedelta):
            raise TypeError(f"RetryLater: delay must be a timedelta, not {delay!r}")
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Reject(OutboxError):
    """Raised by a handler: do not attempt this delivery again; keep it as a dead letter."""

    code = "reject"

    def __init__(self, reason: str) -> None:
        _check_text("Reject", reason=reason)
        super().__init__(reason)
        self.reason = reason


class SomeFailed(OutboxError):
    """Raised by a batch handler without a session: these events failed, the others are done.

    *errors* maps each failed ``event_id`` to its error. ``RetryLater`` and ``Reject`` work as they
    do for a single event. Events that follow a failed one with the same key are handled again.
    """

    code = "some-failed"

    def __init__(self, errors: Mapping[UUID, BaseException]) -> None:
        if not isinstance(errors, Mapping):
            raise TypeError(
                "SomeFailed: errors must be a mapping from event_id to error, not "
                + type(errors).__name__
            )
        for event_id, error in errors.items():
            if not isinstance(event_id, UUID) or not isinstance(error, BaseException):
                raise TypeError(
                    "SomeFailed: errors must map each failed event's event_id to an error, not "
                    f"{type(event_id).__name__} to {type(error).__name__}"
                )
        super().__init__(f"{len(errors)} events of the batch failed")
        self.errors: dict[UUID, BaseException] = dict(errors)


class RelayError(OutboxError):
    """A relay could not forward an event. Retried according to its listener's policy."""

    code = "relay"


class Undeliverable(RelayError):
    """The receiver will never accept this message, or it can't be built: it becomes a dead letter.

    ``kind`` is ``"serialization"``, ``"unknown-destination"`` or ``"refused"``.
    """

    code = "undeliverable"

    def __init__(self, reason: str, *, kind: str = "refused") -> None:
        _check_text("Undeliverable", reason=reason, kind=kind)
        super().__init__(reason)
        self.kind = kind


class RelayUnavailable(RelayError):
    """The receiver can't be reached. No attempt is counted: the relay waits and tries again."""

    code = "relay-unavailable"


class InvalidWebhook(OutboxError, ValueError):
    """A received webhook has no valid signature, or it is too old.

    Raised by ``sa_outbox.webhooks.verify``. Answer with 400 or 401, and do not act on the message.
    """

    code = "invalid-webhook"
