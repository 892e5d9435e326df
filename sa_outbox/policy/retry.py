"""When to retry: the arithmetic."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from ..errors import ConfigError, InvalidEvent, Reject, RetryLater

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

ErrorClasses: TypeAlias = tuple[type[BaseException], ...] | list[type[BaseException]]

_NO_DELAY = timedelta(0)


class RetryChanges(TypedDict, total=False):
    """The fields of a ``RetryPolicy``, for ``replace``."""

    attempts: int
    base: timedelta
    factor: float
    maximum: timedelta
    jitter: bool
    schedule: tuple[timedelta, ...] | list[timedelta] | None
    retry_on: ErrorClasses | None
    final_on: ErrorClasses


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How many attempts a delivery gets, and how long to wait between them."""

    attempts: int = 5
    """Total number of attempts, including the first; 1 means no retry."""

    base: timedelta = timedelta(seconds=1)
    """Wait after the first failed attempt, before jitter."""

    factor: float = 2.0
    """Each further wait is the previous one times this factor."""

    maximum: timedelta = timedelta(minutes=5)
    """Upper limit of a wait."""

    jitter: bool = True
    """Wait a random time between zero and the computed wait ("full jitter"), so that deliveries
    that failed together are not retried together."""

    schedule: tuple[timedelta, ...] | list[timedelta] | None = None
    """The waits themselves, one per retry, instead of base, factor and maximum; no jitter.
    ``attempts`` is then ``len(schedule) + 1``."""

    retry_on: ErrorClasses | None = None
    """The only errors that are retried; all others are final. None: every error that is not final.
    ``RetryLater`` is always retried."""

    final_on: ErrorClasses = ()
    """Errors that a retry can't fix: straight to the dead letters.

    If an error matches both this and ``retry_on``, the more specific class decides: the one that
    comes first in the error's method resolution order.
    """

    @staticmethod
    def preset(name: str) -> RetryPolicy:
        """The policy for a kind of work, one of ``PRESETS``; adjust it with ``replace``."""
        try:
            return PRESETS[name]
        except (KeyError, TypeError):
            raise ConfigError(f"no preset {name!r}; there are {', '.join(PRESETS)}") from None

    def replace(self, **changes: Unpack[RetryChanges]) -> RetryPolicy:
        """This policy with some fields changed, checked like a new one.

        ::

            export = RetryPolicy.preset("export")
            export.replace(final_on=(*export.final_on, BadCard))
        """
        changed = dataclasses.replace(self, **changes)
        attempts = changes.get("attempts", changed.attempts)
        if attempts != changed.attempts:
            raise ConfigError(
                f"attempts={attempts} for a policy with a schedule of {changed.attempts - 1} "
                "waits: change the schedule, or replace it with None too"
            )
        return changed

    def __post_init__(self) -> None:
        if self.schedule is not None:
            object.__setattr__(self, "schedule", _checked_schedule(self.schedule))
            object.__setattr__(self, "attempts", len(self.schedule) + 1)
        if type(self.attempts) is not int or self.attempts < 1:
            raise ConfigError(f"attempts must be 1 or more, not {self.attempts!r}")
        if type(self.factor) not in (int, float) or not 1 <= self.factor < inf:
            raise ConfigError(f"factor must be a number, 1 or more, not {self.factor!r}")
        if type(self.jitter) is not bool:
            raise ConfigError(f"jitter must be True or False, not {self.jitter!r}")
        for name, span in (("base", self.base), ("maximum", self.maximum)):
            _check_span(name, span)
        final_on = _checked_errors("final_on", self.final_on)
        object.__setattr__(self, "final_on", final_on)
        if any(issubclass(each, RetryLater) for each in final_on):
            raise ConfigError("final_on has RetryLater, which is always retried")
        if self.retry_on is not None:
            retry_on = _checked_errors("retry_on", self.retry_on)
            object.__setattr__(self, "retry_on", retry_on)
            if any(issubclass(each, Reject) for each in retry_on):
                raise ConfigError("retry_on has Reject, which is always final")
            both = ", ".join(each.__name__ for each in retry_on if each in final_on)
            if both:
                raise ConfigError(f"retry_on and final_on both have {both}")

    def delay_after(self, attempt: int, *, chance: float) -> timedelta | None:
        """How long to wait after *attempt* (counted from 1) failed; None: give up.

        *chance* is a random number from 0 up to 1, for the jitter; 1 is the longest wait. It is
        passed in so that this is a pure function, for tests of a backoff too.
        """
        if attempt >= self.attempts:
            return None
        if self.schedule is not None:
            return self.schedule[attempt - 1]
        wait = self._grown(attempt)
        return wait * chance if self.jitter else wait

    def gives_up_on(self, error: BaseException) -> bool:
        """True if no retry can fix an error like *error*."""
        for cls in type(error).__mro__:  # what ``except`` goes by; the most specific comes first
            if cls in self.final_on:
                return True
            if self.retry_on is not None and cls in self.retry_on:
                return False
        return self.retry_on is not None

    def _grown(self, attempt: int) -> timedelta:
        if not self.base:
            return _NO_DELAY
        # Compared as floats first: base * factor ** attempt overflows a timedelta long before an
        # attempt count that someone may configure.
        try:
            seconds = self.base.total_seconds() * self.factor ** (attempt - 1)
        except OverflowError:
            return self.maximum
        if seconds >= self.maximum.total_seconds():
            return self.maximum
        return timedelta(seconds=seconds)


def _checked_schedule(schedule: object) -> tuple[timedelta, ...]:
    if not isinstance(schedule, (tuple, list)):
        raise ConfigError(f"schedule must be a tuple of timedelta, not {schedule!r}")
    for number, span in enumerate(schedule):
        _check_span(f"schedule[{number}]", span)
    return tuple(schedule)


def _checked_errors(name: str, classes: object) -> tuple[type[BaseException], ...]:
    if isinstance(classes, (tuple, list)) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in classes
    ):
        return tuple(classes)
    raise ConfigError(f"{name} must be a tuple of error classes, not {classes!r}")


def _check_span(name: str, span: object) -> None:
    if not isinstance(span, timedelta):
        raise ConfigError(f"{name} must be a timedelta, like timedelta(seconds=30), not {span!r}")
    if span < _NO_DELAY:
        raise ConfigError(f"{name} must not be negative, got {span}")


# Only errors that explicitly concern validation or permissions. Not ValueError, although pydantic's
# and msgspec's errors are ValueErrors: so is the error for an answer that is not JSON, from a proxy
# in trouble. Not DecodeError: during a deployment the next consumer may know the event's version.
_NEVER_FIXED_BY_RETRY = (InvalidEvent, PermissionError)


def _preset(*, attempts: int = 5, maximum: timedelta = timedelta(minutes=5)) -> RetryPolicy:
    return RetryPolicy(
        attempts=attempts,
        base=timedelta(seconds=5),
        maximum=maximum,
        final_on=_NEVER_FIXED_BY_RETRY,
    )


PRESETS: Final[Mapping[str, RetryPolicy]] = MappingProxyType(
    {
        "notification": _preset(attempts=10, maximum=timedelta(minutes=30)),
        "planning": _preset(attempts=3, maximum=timedelta(minutes=2)),
        "export": _preset(maximum=timedelta(minutes=10)),
        "import": _preset(maximum=timedelta(minutes=10)),
        "maintenance": _preset(),
        "audit": _preset(),
        "default": _preset(),
    }
)
"""Policies for kinds of work. ``default`` is for work of no particular kind. A listener without a
policy uses ``RetryPolicy()``, which retries sooner and treats no error as final."""
