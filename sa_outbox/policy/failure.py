"""What is stored of an error: its class, a code, its text, its traceback; sanitised and bounded.

An error's text comes from the user: it can be 50 MB long, contain a NUL that PostgreSQL refuses or
a password, or raise when it is read. None of that may keep a dead letter from being written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .error.masking import clean
from .error.tracebacks import cause_of, fingerprint, fingerprint_of, name_of, traceback_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..event.event import Json
    from .error.tracebacks import Traceback

MAX_CODE = 100
"""Maximum length of an error's code, in characters."""
MAX_CAUSES = 5
"""Maximum number of an error's causes whose texts are kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as stored."""

    attempt: int
    code: str
    """The error's own ``code`` if it has one, else the name of its class."""
    error: str
    """Name of the error's class, including its module unless it is a builtin."""
    message: str
    causes: tuple[str, ...] = ()
    traceback: Traceback = ()
    fingerprint: str = ""
    """What is the same each time that this fails, in every process and after a deploy."""

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint(self.error))

    def as_json(self) -> dict[str, Json]:
        kept: dict[str, Json] = {
            "attempt": self.attempt,
            "code": self.code,
            "error": self.error,
            "message": self.message,
            "fingerprint": self.fingerprint,
        }
        if self.causes:
            kept["causes"] = self.causes
        if self.traceback:
            kept["traceback"] = [each.as_json() for each in self.traceback]
        return kept


def describe(
    error: BaseException, *, attempt: int, redact: Callable[[str], str] | None = None
) -> Failure:
    """Everything that is stored of *error*. Never raises."""
    return Failure(
        attempt=attempt,
        code=_code(error),
        error=name_of(error),
        message=clean(_text(error), redact),
        causes=tuple(_causes(error, redact)),
        traceback=traceback_of(error, redact),
        fingerprint=fingerprint_of(error),
    )


def _code(error: BaseException) -> str:
    try:
        code = getattr(error, "code", None)
        given = str.__str__(code) if isinstance(code, str) else ""
    except BaseException:  # noqa: BLE001 - a user's property may raise anything
        given = ""
    return clean(given or type(error).__name__)[:MAX_CODE]


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # __str__ may return a subclass of str: take the text itself
    except BaseException as broken:  # noqa: BLE001 - __str__ is user code
        return f"(its text is unavailable: {type(broken).__name__})"


def _causes(error: BaseException, redact: Callable[[str], str] | None) -> list[str]:
    found: list[str] = []
    seen = {id(error)}
    cause = cause_of(error)
    while cause is not None and id(cause[1]) not in seen and len(found) < MAX_CAUSES:
        each = cause[1]
        seen.add(id(each))
        found.append(f"{name_of(each)}: {clean(_text(each), redact)[:1000]}")
        cause = cause_of(each)
    return found
