"""Declaring relays: what ``outbox.relay(...)`` does with its arguments. Wrong ones are refused at
startup, not when the first event is to be sent."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_outbox.declare.declaration import declare
from sa_outbox.declare.handler import payload_for
from sa_outbox.declare.listener import Listener
from sa_outbox.errors import ConfigError
from sa_outbox.event.type_patterns import wanted
from sa_outbox.policy.checks import ONE_DAY, check_span
from sa_outbox.policy.order import checked_order
from sa_outbox.policy.retry import RetryPolicy

from .envelope import Plain, wrapping
from .forward import Forward
from .message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.declare.type_patterns import On
    from sa_outbox.event.event import Event
    from sa_outbox.settings import Settings

    from .envelope import Envelope
    from .message import Relay

BATCH = 500
SPARE = timedelta(seconds=10)
"""The consumer's own limit is longer than the relay's, for a relay that ignores its
cancellation."""
RETRY = RetryPolicy(attempts=20, maximum=timedelta(minutes=5))
"""For messages that were refused individually; while the receiver is unreachable, nothing is
counted."""
_NEEDED = ("keeps_order", "takes_batches", "attribute_prefix")
_CALLED = ("check_destination", "send", "close")
_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("event_type", "key", "tenant")


def declare_relay(
    name: str,
    relay: Relay,
    *,
    on: On,
    to: str | Callable[[Event[Any]], str | None] | None,
    envelope: Envelope | None,
    map: Callable[[Event[Any]], Message | None] | None,  # noqa: A002 - as in outbox.relay
    timeout: timedelta,
    max_pause: timedelta | None = None,
    tenant: str | None = None,
    options: dict[str, Any],
    settings: Settings,
) -> Listener:
    _check_relay(name, relay)
    check_span(f"timeout of relay {name!r}", timeout)
    deadline = getattr(relay, "deadline", timedelta(0))
    if deadline >= timeout:
        raise ConfigError(
            f"timeout of relay {name!r} is {timeout}, and it waits {deadline} for an answer: what "
            "hangs would never count as an attempt. Give outbox.relay a longer one"
        )
    if map is not None and (to is not None or envelope is not None):
        raise ConfigError(
            f"relay {name!r} has a map, which creates the whole message: no to=, no "
            "envelope= beside it"
        )
    make = _mapped(name, relay, map) if map is not None else _enveloped(name, relay, to, envelope)
    mode = checked_order(f"order of listener {name!r}", options.get("order", Listener.order))
    own = map if map is not None else to
    pause = getattr(relay, "max_pause", None) if max_pause is None else max_pause
    check_span(f"max_pause of relay {name!r}", pause, most=ONE_DAY, or_none=True)
    forward = Forward(
        relay,
        make,
        order=mode.name,
        timeout=timeout.total_seconds(),
        payload=payload_for(own) if callable(own) else None,
        max_pause=None if pause is None else pause.total_seconds(),
        tenant=tenant,
        to=to if isinstance(to, str) else None,
        envelope=None if map is not None else envelope or Plain(),
    )
    retry = getattr(relay, "retry", RETRY)
    options = {"batch_size": BATCH, "retry": retry, "external": True, **options}
    options |= {"timeout": timeout + SPARE, "forwarding": forward}
    listener = declare(
        name, on, forward.all if relay.takes_batches else forward.one, options, settings
    )
    _check_destinations(name, relay, to, listener.on)
    return listener


def _check_relay(name: str, relay: object) -> None:
    missing = [each for each in _NEEDED if not hasattr(relay, each)]
    missing += [each for each in _CALLED if not callable(getattr(relay, each, None))]
    if isinstance(relay, type) or missing:
        lacks = f": it has no {', '.join(missing)}" if missing else ", but a class: make one"
        raise ConfigError(f"relay {name!r} is not a relay, {relay!r}{lacks}")


def _mapped(
    name: str, relay: Relay, make: Callable[[Event[Any]], Message | None]
) -> Callable[[Event[Any], int], Message | None]:
    if not callable(make):
        raise ConfigError(f"map of relay {name!r} must be a function: {make!r}")

    def mapped(event: Event[Any], epoch: int) -> Message | None:
        with wrapping(epoch, relay.attribute_prefix):
            message: object = make(event)
        if message is not None and not isinstance(message, Message):
            raise TypeError(f"the map of relay {name!r} returned {type(message).__name__}")
        return message

    return mapped


def _enveloped(
    name: str,
    relay: Relay,
    to: str | Callable[[Event[Any]], str | None] | None,
    envelope: Envelope | None,
) -> Callable[[Event[Any], int], Message | None]:
    wrap = (envelope or Plain()).wrap
    prefix = relay.attribute_prefix
    if callable(to):
        choose = to
    elif isinstance(to, str):
        quote = getattr(relay, "quote", str)
        choose = _filled(name, to, quote, getattr(relay, "quote_type", quote))
    else:
        raise ConfigError(f"relay {name!r} needs to=, where its messages go, or map=")

    def put(event: Event[Any], epoch: int) -> Message | None:
        destination = choose(event)
        if destination is None:
            return None
        return wrap(event, destination, epoch=epoch, prefix=prefix)

    return put


def _filled(
    name: str, to: str, quote: Callable[[str], str], quote_type: Callable[[str], str]
) -> Callable[[Event[Any]], str | None]:
    """``"orders.{event_type}"``: a field in braces is filled in from the event."""
    unknown = [each for each in _FIELD.findall(to) if each not in _FIELDS]
    if unknown:
        raise ConfigError(
            f"to= of relay {name!r} has {{{unknown[0]}}}; there are "
            + ", ".join(f"{{{each}}}" for each in _FIELDS)
        )
    if not _FIELD.search(to):
        return lambda _: to

    def fill(event: Event[Any]) -> str:
        def value(found: re.Match[str]) -> str:
            text = getattr(event, found[1])
            if text is None:
                raise ConfigError(f"to= of the relay needs the event's {found[1]}, it has none")
            return quote_type(text) if found[1] == "event_type" else quote(str(text))

        return _FIELD.sub(value, to)

    return fill


def _check_destinations(name: str, relay: Relay, to: object, on: tuple[str, ...]) -> None:
    """Check destinations as far as they are known without events: with the types it listens to."""
    if not isinstance(to, str):
        return
    for event_type in wanted(on):
        shown = to.replace("{event_type}", event_type.replace("*", "x"))
        try:
            relay.check_destination(_FIELD.sub("x", shown))
        except ConfigError as error:
            raise ConfigError(f"relay {name!r}: {error}") from error
