"""What is kept of an error: its class, a code, its text; cleaned, and never too much.

An error's text is the user's: it can be 50 MB, hold a NUL that PostgreSQL refuses, a password, or
raise when it is asked for. A dead letter must not fail to be written because of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .event import Json

MAX_MESSAGE = 8_000
"""Most characters of an error's text that are kept."""
MAX_NAME, MAX_CODE = 200, 100
"""Most characters of a class's name, and of an error's code."""
MAX_CAUSES = 5
"""Most causes of an error that are followed."""

_SECRETS = (
    # Up to the last @ before white space or a quote: a password may hold @ and /. Every repeat is
    # bounded, or a long text without a match would take a second of the event loop.
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^\s'\"<>]{1,500}@"), r"\1***@"),
    (
        re.compile(
            r"(?i)(\bauthorization['\"]?\s{0,5}[:=]\s{0,5})(?:\"[^\"]*\"|'[^']*'|[^\n,;}]+)"
        ),
        r"\1***",
    ),
    (
        re.compile(
            r"(?i)(\b\w{0,30}(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)\w{0,30}"
            r"['\"]?\s{0,5}[:=]\s{0,5})(?:\"[^\"]*\"|'[^']*'|[^\s,;&)}\]]+)"
        ),
        r"\1***",
    ),
)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as it is stored."""

    attempt: int
    code: str
    """The error's own ``code`` if it has one, else the name of its class."""
    error: str
    """Name of the error's class, with its module unless it is a builtin."""
    message: str
    causes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        kept: dict[str, Json] = {
            "attempt": self.attempt,
            "code": self.code,
            "error": self.error,
            "message": self.message,
        }
        return {**kept, "causes": self.causes} if self.causes else kept


def describe(
    error: BaseException, *, attempt: int, redact: Callable[[str], str] | None = None
) -> Failure:
    """Everything that is kept of *error*. Never raises."""
    return Failure(
        attempt=attempt,
        code=_code(error),
        error=_name(error),
        message=clean(_text(error), redact),
        causes=tuple(_causes(error, redact)),
    )


def clean(text: str, redact: Callable[[str], str] | None = None) -> str:
    """Cut *text* to what is kept, without secrets and without what PostgreSQL can't store."""
    cut = text[: 2 * MAX_MESSAGE]  # before the patterns run: they would take long on 50 MB
    for pattern, replacement in _SECRETS:
        cut = pattern.sub(replacement, cut)
    if redact is not None:
        try:
            cut = str(redact(cut))
        except Exception as error:  # noqa: BLE001 - the user's function, and the text may be secret
            cut = f"(redact failed: {type(error).__name__})"
    shown = _UNSTORABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", cut[:MAX_MESSAGE])
    shown = shown[:MAX_MESSAGE]
    return shown if len(text) <= MAX_MESSAGE else f"{shown} ... ({len(text):,} characters)"


def _code(error: BaseException) -> str:
    try:
        code = getattr(error, "code", None)
    except BaseException:  # noqa: BLE001 - a property of the user's
        code = None
    given = code if isinstance(code, str) and code else type(error).__name__
    return clean(given)[:MAX_CODE]


def _name(error: BaseException) -> str:
    cls = type(error)
    module = cls.__module__
    name = cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"
    return clean(name)[:MAX_NAME]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - __str__ is the user's
        return f"(its text can't be had: {type(broken).__name__})"


def _causes(error: BaseException, redact: Callable[[str], str] | None) -> list[str]:
    found: list[str] = []
    seen = {id(error)}
    cause = _cause(error)
    while cause is not None and id(cause) not in seen and len(found) < MAX_CAUSES:
        seen.add(id(cause))
        found.append(f"{_name(cause)}: {clean(_text(cause), redact)[:1000]}")
        cause = _cause(cause)
    return found


def _cause(error: BaseException) -> BaseException | None:
    # Not "or": whether an error is true is for its class to say.
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__
