"""What is stored of an error: its class, a code and its text; sanitised and bounded.

An error's text comes from the user: it can be 50 MB long, contain a NUL that PostgreSQL refuses or
a password, or raise when it is read. None of that may keep a dead letter from being written.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .secrets import BEARER, JSON_WEB_TOKEN, VENDOR_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..event.event import Json

MAX_MESSAGE = 8_000
"""Maximum length of an error's stored text, in characters."""
MAX_NAME, MAX_CODE = 200, 100
"""Maximum length of a class name and of an error's code, in characters."""
MAX_CAUSES = 5
"""Maximum number of an error's causes that are followed."""

_QUOTED = r"[bu]?\"(?:[^\"\\]|\\[\s\S])*\"|[bu]?'(?:[^'\\]|\\[\s\S])*'"


def _without_credentials(found: re.Match[str]) -> str:
    """``Basic`` is also an English word: what follows is secret only if it decodes to
    user:password."""
    try:
        is_secret = b":" in b64decode(found[2] + "=" * (-len(found[2]) % 4), validate=True)
    except ValueError:
        is_secret = False
    return f"{found[1]}***" if is_secret else found[0]


# Values that libraries quote in their errors: personal data or secrets, without a label before
# them.
_QUOTED_VALUES = (
    # SQLAlchemy, with an engine that lacks hide_parameters.
    (re.compile(r"(\[parameters: )[\s\S]*?(\](?=\n|\Z)|\Z)"), r"\1***\2"),
    # PostgreSQL: "Key (email)=(...) already exists", "Failing row contains (...)".
    (
        re.compile(
            r"(\bDETAIL:\s{0,5}(?:Key \([^)\n]{1,500}\)=)?)\S[\s\S]*?"
            r"(?=\n(?:HINT|CONTEXT|QUERY|LOCATION|LINE \d+|STATEMENT):|\n\[|\n\(|\Z)"
        ),
        r"\1***",
    ),
    (re.compile(r"(\bCONTEXT:\s{0,5}[^\n]{0,200}?(?: = |: ))['\"][^\n]*"), r"\1***"),
    (
        re.compile(
            r"(\b(?:invalid input (?:syntax|value) for (?:type|enum) [\w .\"]{1,100}"
            r"|value out of range|malformed \w+ literal): )\"[^\n]*"
        ),
        r"\1***",
    ),
    # asyncpg: "invalid input for query argument $1: 'value' (expected str, got int)".
    (
        re.compile(
            r"(\bquery argument \$\d{1,5}[^:\n]{0,80}: )[^\n]*?"
            r"( \(expected [\w .]{1,80}, got [\w .]{1,80}\))?(?=\n|\Z)"
        ),
        r"\1***\2",
    ),
    # pydantic: "[type=int_parsing, input_value='value', input_type=str]".
    (
        re.compile(r"(\binput_value=)[^\n]{0,2000}?(, input_type=|\](?=\n|\Z)|(?=\n|\Z))"),
        r"\1***\2",
    ),
)

# Every repetition that may be tried at many positions is bounded: otherwise a long text without a
# match would block the event loop for a second.
_SECRETS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    *_QUOTED_VALUES,
    # Up to the last @ before white space or a quote: a password may contain @ and /.
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^\s'\"<>]{1,500}@"), r"\1***@"),
    # The remainder of a truncated key is secret too.
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
    # In a URL's query: signed URLs, and services that take their key there.
    (
        re.compile(r"(?i)([?&](?:[\w.-]{0,30}[_.-])?(?:sig|signature|key|auth)=)[^\s&#'\"<>]+"),
        r"\1***",
    ),
    # Secrets recognisable by their shape, without a label before them.
    (BEARER, r"\1***"),
    (re.compile(r"(?i)(\bbasic\s{1,5})([a-z0-9+/]{6,1000}={0,2})"), _without_credentials),
    (JSON_WEB_TOKEN, "***"),
    (VENDOR_KEY, "***"),
)
_LONGEST_SECRET = 600
"""About as much text as any pattern above needs to see."""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


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
    """Everything that is stored of *error*. Never raises."""
    return Failure(
        attempt=attempt,
        code=_code(error),
        error=_name(error),
        message=clean(_text(error), redact),
        causes=tuple(_causes(error, redact)),
    )


def clean(text: str, redact: Callable[[str], str] | None = None) -> str:
    """Truncate *text*, and remove secrets and whatever PostgreSQL can't store."""
    cut = text[: 2 * MAX_MESSAGE]  # before the patterns run: they would be slow on 50 MB
    for pattern, replacement in _SECRETS:
        cut = pattern.sub(replacement, cut)
    if len(text) > 2 * MAX_MESSAGE:
        # The end may be half a secret, which no pattern recognises; if much was removed before it,
        # it would be part of what is kept.
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
    except BaseException:  # noqa: BLE001 - a user's property may raise anything
        given = ""
    return clean(given or type(error).__name__)[:MAX_CODE]


def _name(error: BaseException) -> str:
    cls = type(error)
    module = cls.__module__
    known = isinstance(module, str) and module != "builtins"
    return clean(f"{module}.{cls.__qualname__}" if known else cls.__qualname__)[:MAX_NAME]


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # __str__ may return a subclass of str: take the text itself
    except BaseException as broken:  # noqa: BLE001 - __str__ is user code
        return f"(its text is unavailable: {type(broken).__name__})"


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
        # Not "or": the truth value of an error is defined by its class.
        explicit = error.__cause__ is not None or error.__suppress_context__
        cause: object = error.__cause__ if explicit else error.__context__
    except BaseException:  # noqa: BLE001 - a class may have properties of these names
        return None
    return cause if isinstance(cause, BaseException) else None
