"""What may be kept of a text that somebody else wrote: no secrets, a bounded length, and nothing
that PostgreSQL can't store."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING

from ..secrets import BEARER, JSON_WEB_TOKEN, VENDOR_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE = 8_000
"""Maximum length of a cleaned text, in characters."""

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
            r"|(?:api|access|account|private)[_-]?key|sharedaccesssignature)\w{0,30}['\"]?\s{0,5}[:=]\s{0,5})"
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
