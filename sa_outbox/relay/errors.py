"""What all relays use in their answers: an error with its cause, and a missing extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable

if TYPE_CHECKING:
    from .message import Message

Failed = TypeVar("Failed", bound=BaseException)


def with_cause(error: Failed, cause: BaseException) -> Failed:
    """*error* as if raised from *cause*: answers are returned, not raised."""
    error.__cause__ = cause
    return error


def unavailable(what: str, cause: BaseException) -> RelayUnavailable:
    """The receiver can't be reached; observations name the type of *cause*."""
    text = str(cause)
    return with_cause(
        RelayUnavailable(f"{what}: {type(cause).__name__}" + f": {text}" * (text != "")), cause
    )


def too_large(message: Message, size: int, most: int) -> Undeliverable:
    return Undeliverable(
        f"the message of event {message.event.event_id} has {size:,} bytes, at most {most:,} are "
        f"taken by {message.destination!r}",
        kind="serialization",
    )


def not_serializable(message: Message, cause: BaseException) -> Undeliverable:
    text = f"event {message.event.event_id} can't be a message: {type(cause).__name__}: {cause}"
    return with_cause(Undeliverable(text, kind="serialization"), cause)


def missing(relay: str, extra: str) -> ConfigError:
    return ConfigError(f'{relay} needs its client: pip install "sa_outbox[{extra}]"')
