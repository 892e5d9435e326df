"""When to attempt again: the arithmetic, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf

from .errors import ConfigError

_NO_DELAY = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How many attempts a delivery gets, and how long to wait between them."""

    attempts: int = 5
    """Attempts in all, the first included; 1 means no retry."""

    base: timedelta = timedelta(seconds=1)
    """Wait after the first failed attempt, before jitter."""

    factor: float = 2.0
    """Each further wait is this many times the one before."""

    maximum: timedelta = timedelta(minutes=5)
    """No wait is longer than this."""

    jitter: bool = True
    """Wait a random time between zero and the computed one ("full jitter"), so that many
    deliveries that failed together do not come back together."""

    schedule: tuple[timedelta, ...] | None = None
    """The waits themselves, one per retry, instead of base, factor and maximum; no jitter.
    ``attempts`` is then ``len(schedule) + 1``."""

    final_on: tuple[type[BaseException], ...] = ()
    """Errors that no further attempt can mend: straight to the dead letters."""

    def __post_init__(self) -> None:
        if self.schedule is not None:
            if not isinstance(self.schedule, (tuple, list)):
                raise ConfigError(f"schedule must be a tuple of spans, not {self.schedule!r}")
            object.__setattr__(self, "schedule", tuple(self.schedule))
            object.__setattr__(self, "attempts", len(self.schedule) + 1)
        if type(self.attempts) is not int or self.attempts < 1:
            raise ConfigError(f"attempts must be 1 or more, not {self.attempts!r}")
        if not isinstance(self.factor, (int, float)) or not 1 <= self.factor < inf:
            raise ConfigError(f"factor must be a number, 1 or more, not {self.factor!r}")
        if type(self.jitter) is not bool:
            raise ConfigError(f"jitter must be True or False, not {self.jitter!r}")
        _check_errors(self.final_on)
        for name, span in (("base", self.base), ("maximum", self.maximum)):
            _check_span(name, span)
        for span in self.schedule or ():
            _check_span("schedule", span)

    def delay_after(self, attempt: int, *, chance: float) -> timedelta | None:
        """How long to wait after *attempt* (counted from 1) failed; None: give up.

        *chance* is a random number from 0 up to 1. It is an argument so that the answer is a
        function of what is passed.
        """
        if attempt >= self.attempts:
            return None
        if self.schedule is not None:
            return self.schedule[attempt - 1]
        wait = self._grown(attempt)
        return wait * chance if self.jitter else wait

    def gives_up_on(self, error: BaseException) -> bool:
        """True if *error* is of a kind that no further attempt can mend."""
        return isinstance(error, self.final_on)

    def _grown(self, attempt: int) -> timedelta:
        if not self.base:
            return _NO_DELAY
        # Compared as floats first: base * factor ** attempt overflows a timedelta long before
        # an attempt count that someone may well configure.
        try:
            seconds = self.base.total_seconds() * self.factor ** (attempt - 1)
        except OverflowError:
            return self.maximum
        if seconds >= self.maximum.total_seconds():
            return self.maximum
        return timedelta(seconds=seconds)


def _check_errors(classes: tuple[type[BaseException], ...]) -> None:
    good = isinstance(classes, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in classes
    )
    if not good:
        raise ConfigError(f"final_on must be a tuple of error classes, not {classes!r}")


def _check_span(name: str, span: timedelta) -> None:
    if not isinstance(span, timedelta):
        raise ConfigError(f"{name} must be a timedelta, not {span!r}")
    if span < _NO_DELAY:
        raise ConfigError(f"{name} must not be negative, got {span}")
