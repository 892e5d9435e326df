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

_QUOTED = r"[bu]?\"(?:[^\"\\]|\\[\s\S])*\"|[bu]?'(?:[^'\\]|\\[\s\S])*'"
# Every repeat that may be tried at many places is bounded, or a long text without a match would
# take a second of the event loop.
_SECRETS = (
    # Up to the last @ before white space or a quote: a password may hold @ and /.
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^\s'\"<>]{1,500}@"), r"\1***@"),
    # The rest of a key whose end was cut off is secret too.
    (
        re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[\s\S]*?(-----END|\Z)"),
        r"\1***\2",
    ),
    (
        re.compile(rf"(?i)(\bauthorization['\"]?\s{{0,5}}[:=]\s{{0,5}})(?:{_QUOTED}|[^\n,;}}]+)"),
        r"\1***",
    ),
    (
        re.compile(rf"(?i)(\b(?:set-)?cookie['\"]?\s{{0,5}}[:=]\s{{0,5}})(?:{_QUOTED}|[^\n}}]+)"),
        r"\1***",
    ),
    (
        re.compile(
            r"(?i)(\b\w{0,30}(?:password|passwd|passphrase|pwd|secret|token|credential"
            r"|(?:api|access|private)[_-]?key)\w{0,30}['\"]?\s{0,5}[:=]\s{0,5})"
            rf"(?:{_QUOTED}|[^\s,;&)}}\]]+)"
        ),
        r"\1***",
    ),
    # In the query of a URL: of signed ones, and of services that take their key there.
    (
        re.compile(r"(?i)([?&](?:[\w.-]{0,30}[_.-])?(?:sig|signature|key|auth)=)[^\s&#'\"<>]+"),
        r"\1***",
    ),
    # What is a secret by its looks, without a name before it.
    (re.compile(r"(?i)(\bbearer\s{1,5})[\w.~+/=-]{16,}"), r"\1***"),
    (re.compile(r"\beyJ[\w-]{10,1000}\.[\w-]{10,}(?:\.[\w-]*)?"), "***"),
)
_LONGEST_SECRET = 600
"""About the most that a pattern above needs to see."""
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
    if len(text) > 2 * MAX_MESSAGE:
        # The end may be half a secret, which no pattern knows; when much was taken out before it,
        # it would be among what is kept.
        cut = cut[:-_LONGEST_SECRET]
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
        given = str.__str__(code) if isinstance(code, str) else ""
    except BaseException:  # noqa: BLE001 - a property of the user's
        given = ""
    return clean(given or type(error).__name__)[:MAX_CODE]


def _name(error: BaseException) -> str:
    cls = type(error)
    module = cls.__module__
    known = isinstance(module, str) and module != "builtins"
    return clean(f"{module}.{cls.__qualname__}" if known else cls.__qualname__)[:MAX_NAME]


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # of a subclass of str, which it may return, the text itself
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
    try:
        # Not "or": whether an error is true is for its class to say.
        explicit = error.__cause__ is not None or error.__suppress_context__
        cause: object = error.__cause__ if explicit else error.__context__
    except BaseException:  # noqa: BLE001 - a class may have properties of these names
        return None
    return cause if isinstance(cause, BaseException) else None
