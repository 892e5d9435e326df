"""A relay's handler: from events to messages, and from answers to outcomes.

The invariant: a message of a key is given to the relay only after the previous one was answered
with success, unless the relay keeps the order itself. So whatever fails, what is sent again comes
before what follows it; a receiver that drops every ``event_id`` it has already seen sees each key's
events once, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, SomeFailed, Undeliverable
from sa_outbox.policy.order import ORDER_MODES

from .errors import with_cause
from .message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_outbox.event.event import Event
    from sa_outbox.event.wanted import Wanted
    from sa_outbox.policy.order import Order

    from .envelope import Envelope
    from .message import Answer, Relay

MAX_KNOWN = 10_000
"""How many valid destinations are remembered."""


class Forward:
    def __init__(
        self,
        relay: Relay,
        make: Callable[[Event[Any], int], Message | None],
        *,
        order: Order,
        timeout: float,
        payload: Wanted | None = None,
        max_pause: float | None = None,
        tenant: str | None = None,
        to: str | None = None,
        envelope: Envelope | None = None,
    ) -> None:
        self.relay = relay
        self._epoch = 0
        self.payload = payload
        """What the program's ``map`` or ``to`` asks for by its annotation; None: JSON."""
        self.max_pause = max_pause
        self.tenant = tenant
        self.to = to
        """Where messages go, as it was declared; None: a function of the program decides."""
        self.envelope = envelope
        """What messages are made with; None: the program's ``map``."""
        self._make = make
        self._lane_of = ORDER_MODES[order].lane
        self._timeout = timeout
        self._at_once = relay.keeps_order or ORDER_MODES[order].is_unordered
        """A whole batch is given to the relay together."""
        self._good: set[str] = set()

    async def all(self, events: Sequence[Event[Any]]) -> None:
        """Handle a batch."""
        answers = await self._answers(events)
        failed = {
            event.event_id: answer
            for event, answer in zip(events, answers, strict=True)
            if answer is not None
        }
        if failed:
            raise SomeFailed(failed)

    async def one(self, event: Event[Any]) -> None:
        """Handle one event."""
        (answer,) = await self._answers([event])
        if answer is not None:
            raise answer

    def begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    async def close(self) -> None:
        await self.relay.close()

    async def _answers(self, events: Sequence[Event[Any]]) -> Sequence[Answer]:
        made = [self._message(event) for event in events]
        messages = [each for each in made if isinstance(each, Message)]
        if len(messages) == len(made) and self._at_once:
            return await self._send(messages)
        answers: list[Answer] = [each if isinstance(each, Undeliverable) else None for each in made]
        waiting = [(index, each) for index, each in enumerate(made) if isinstance(each, Message)]
        while waiting:
            wave, waiting = self._wave(waiting)
            failed: dict[object, BaseException] = {}
            sent = await self._send([message for _, message in wave])
            for (index, message), answer in zip(wave, sent, strict=True):
                answers[index] = answer
                if isinstance(answer, RelayUnavailable):
                    for later, _ in waiting:
                        answers[later] = answer
                    waiting = []
                elif answer is not None and not isinstance(answer, Undeliverable):
                    failed[self._lane(index, message)] = answer
            for later, message in waiting if failed else ():
                answers[later] = failed.get(self._lane(later, message))
            waiting = [each for each in waiting if answers[each[0]] is None]
        return answers

    def _wave(
        self, waiting: list[tuple[int, Message]]
    ) -> tuple[list[tuple[int, Message]], list[tuple[int, Message]]]:
        """What may be sent at once, and what has to wait for its answers."""
        if self._at_once:
            return waiting, []
        wave: list[tuple[int, Message]] = []
        rest: list[tuple[int, Message]] = []
        lanes: set[object] = set()
        for index, message in waiting:
            lane = self._lane(index, message)
            (rest if lane in lanes else wave).append((index, message))
            lanes.add(lane)
        return wave, rest

    def _lane(self, index: int, message: Message) -> object:
        """What stays in order: the event's key, whatever key the message has."""
        return self._lane_of(message.event.key, index)

    def _message(self, event: Event[Any]) -> Message | Undeliverable | None:
        """None: it is not to be sent."""
        try:
            message = self._make(event, self._epoch)
            if message is None:
                return None
            self._check(message.destination)
        except Undeliverable as error:
            return error
        except ConfigError as error:
            return with_cause(Undeliverable(str(error), kind="unknown-destination"), error)
        except Exception as error:  # noqa: BLE001 - the map is user code
            text = f"the event could not be turned into a message: {type(error).__name__}: {error}"
            return with_cause(Undeliverable(text, kind="serialization"), error)
        return message

    def _check(self, destination: str) -> None:
        if destination not in self._good:
            self.relay.check_destination(destination)
            if len(self._good) >= MAX_KNOWN:
                self._good.clear()
            self._good.add(destination)

    async def _send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        try:
            with anyio.fail_after(self._timeout):
                answers = await self.relay.send(messages)
        except TimeoutError as error:
            text = f"no answer within {self._timeout:g} s"
            return [with_cause(RelayUnavailable(text), error)] * len(messages)
        except Exception as error:  # noqa: BLE001 - the relay's answer for all of them
            return [error] * len(messages)
        if len(answers) != len(messages):
            text = f"the relay answered {len(answers)} times for {len(messages)} messages"
            return [RelayError(text)] * len(messages)
        return answers
