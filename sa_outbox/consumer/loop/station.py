"""One handler of a listener, for one task: how it is called, with what, in what transaction, and
what the end of an attempt means. Most listeners have one; a queue may have one per event type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sa_outbox.errors import NoHandler

from ..handler.arguments import HandlerArguments
from ..handler.call import HandlerCall
from ..handler.session import maker_of
from ..shared.stop_reason import StopReason
from ..transaction.transaction import HandlerTransaction
from .conclusion import Conclusion

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.declare.listener import Listener

    from ..handler.delivery import InFlight
    from ..shared.relay_backoff import RelayBackoff
    from .port import Port

TurnTo: TypeAlias = "Callable[[InFlight], HandlerTransaction]"


class Station:
    def __init__(
        self,
        port: Port,
        backoff: RelayBackoff,
        turn_to: TurnTo | None,
        handler: Listener,
    ) -> None:
        context = port.context

        def stuck() -> None:
            reason = f"a handler of {handler.name!r} ignored its cancellation"
            context.stop(StopReason.STUCK, reason)

        self.call: HandlerCall = HandlerCall(
            handler, context.threads, context.observers, stuck, context.lifetime, context.owner
        )
        self.transaction: HandlerTransaction | None = _transaction(
            port, turn_to, self.call, handler
        )
        has_session = self.transaction is not None
        self.conclusion: Conclusion = Conclusion(port, backoff, has_session=has_session)
        self.arguments: HandlerArguments = HandlerArguments(
            self.call.load, self.conclusion, port.lanes, batch=port.listener.call.batch
        )


class Stations:
    """Those of one listener; ``now`` is the one whose handler is called next, or was called last.

    Only one has a deadline's cancel scope open: scopes of one task have to be left in the reverse
    order, and a time limit may end the outer one first.
    """

    def __init__(self, port: Port, backoff: RelayBackoff) -> None:
        self._handlers = port.listener.handlers
        self.are_several: bool = len(self._handlers) > 1
        turn_to = self._join if self.are_several else None
        self._make = partial(Station, port, backoff, turn_to)
        self._listener = port.listener
        self._handler = self._handlers[0]
        self.now: Station = self._make(self._handler)
        self._made = {0: self.now}

    def turn_to(self, event_type: str) -> NoHandler | None:
        """Make ``now`` the station for *event_type*; what is wrong if there is none."""
        number = self._listener.handler_of(event_type)
        if number is None:
            return NoHandler(self._listener.name, event_type)
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = self._make(self._handlers[number])
        if found is not self.now:
            self.close()
            self.now, self._handler = found, self._handlers[number]
        return None

    def fits(self, item: InFlight) -> bool:
        """Whether its handler can be called in the transaction of ``now``: it takes the same kind
        of session. Another kind needs a connection of another driver; without a session, what it
        does is not undone with the transaction."""
        number = self._listener.handler_of(item.event_type)
        kind = self._handler.call.session
        return number is not None and self._handlers[number].call.session == kind

    def _join(self, item: InFlight) -> HandlerTransaction:
        """The transaction of the handler of an event that ``fits``, which is ``now``."""
        self.turn_to(item.event_type)
        assert self.now.transaction is not None  # noqa: S101 - it takes a session
        return self.now.transaction

    def close(self) -> None:
        self.now.call.close()


def _transaction(
    port: Port, turn_to: TurnTo | None, call: HandlerCall, handler: Listener
) -> HandlerTransaction | None:
    context = port.context
    if handler.call.session == "none":
        return None
    is_async = handler.call.session == "async"
    make = context.async_sessions if is_async else context.sync_sessions
    assert make is not None  # noqa: S101 - the consumer has made what its listeners need
    return HandlerTransaction(
        maker_of(make, handler.call.session_class),
        call,
        port.lease,
        port.progress,
        port.settlement,
        connections=context.connections,
        suspects=context.suspects,
        outage=lambda: port.outage,
        turn_to=turn_to,
    )
