"""Standard Webhooks signatures: created by the relay, verified by the receiver.

The signed content is ``id.timestamp.body``, using the exact bytes that were sent: a body that was
decoded and encoded again has a different signature. This module needs only the standard library.

Two rules keep a signature from matching any message other than its own. An id contains no dot and a
timestamp contains only digits, so the signed content can be parsed in one way only. And the
timestamp must be recent: a replayed message is refused after a few minutes, and within them the
receiver recognises its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets as random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from .errors import ConfigError, InvalidWebhook

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
PREFIX: Final = "whsec_"
SHORTEST, LONGEST = 24, 64
"""Length of a key in bytes, as the specification allows."""
MAX_SIGNATURES = 20
TOLERANCE = timedelta(minutes=5)

_ID = re.compile(r"[!-\-/-~]{1,256}")  # printable, without the dot
_TIMESTAMP = re.compile(r"[0-9]{1,11}")
_MAX_HEADER = 4096

Keys: TypeAlias = str | bytes | Iterable[str | bytes]
"""``"whsec_..."``, or bytes that are the key itself; during a rotation, both keys."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A message that was sent by someone who knows the secret."""

    message_id: str
    """Identical every time this message is sent: it identifies duplicates."""
    timestamp: datetime
    """When this copy was sent."""
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """The decoded body. Raises :class:`~sa_outbox.errors.InvalidWebhook` if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise InvalidWebhook("the body is signed, but it is not JSON") from error


def new_secret() -> str:
    """A secret for one receiver: 32 random bytes, as ``whsec_...``."""
    return PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def sign(
    body: bytes, *, message_id: str, secrets: Keys, timestamp: datetime | None = None
) -> dict[str, str]:
    """The headers that sign *body*; one signature per secret in *secrets*."""
    if not isinstance(message_id, str) or not _ID.fullmatch(message_id):
        raise ConfigError(f"a message id has 1 to 256 characters and no dot: {message_id!r}")
    when = datetime.now(UTC) if timestamp is None else timestamp
    if when.tzinfo is None:
        raise ConfigError("timestamp has no time zone")
    seconds = str(int(when.timestamp()))
    signed = [f"v1,{_signature(key, message_id, seconds, body)}" for key in keys_of(secrets)]
    return {ID: message_id, TIMESTAMP: seconds, SIGNATURE: " ".join(signed)}


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: Keys,
    *,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> Verified:
    """Check that *body* was signed with one of *secrets*, no longer than *tolerance* ago.

    *body* is the raw bytes from the wire, before any decoding; header names are case-insensitive.
    Raises :class:`~sa_outbox.errors.InvalidWebhook`; then answer with 400 or 401 and do not act on
    the message. A malformed secret raises ``ConfigError``.
    """
    keys = keys_of(secrets)
    if not isinstance(body, bytes):
        raise TypeError(f"body must be the bytes that were received, not {type(body).__name__}")
    message_id, seconds, signatures = _headers(headers)
    sent_at = datetime.fromtimestamp(int(seconds), UTC)
    if abs((datetime.now(UTC) if now is None else now) - sent_at) > tolerance:
        raise InvalidWebhook(f"it was signed at {sent_at.isoformat()}: too old, or in the future")
    given = [
        text.encode("ascii", "replace")
        for version, _, text in (each.partition(",") for each in signatures.split(" "))
        if version == "v1"
    ]
    if len(given) > MAX_SIGNATURES:
        raise InvalidWebhook(f"it has {len(given)} signatures, more than {MAX_SIGNATURES}")
    fits = False
    for key in keys:
        expected = _signature(key, message_id, seconds, body).encode()
        for each in given:
            # Check every signature, even after a match: the time taken must reveal nothing.
            fits |= hmac.compare_digest(expected, each)
    if not fits:
        raise InvalidWebhook("no signature matches: wrong secret, or the message was altered")
    return Verified(message_id, sent_at, body)


def keys_of(secrets: Keys) -> list[bytes]:
    """The decoded keys. Raises ``ConfigError``, which never shows them."""
    if isinstance(secrets, (str, bytes)):
        secrets = [secrets]
    given = list(secrets) if isinstance(secrets, Iterable) else []
    if not given:
        raise ConfigError("there is no secret to sign or verify with")
    return [_key(each) for each in given]


def _key(secret: object) -> bytes:
    if isinstance(secret, str):
        try:
            text = secret.removeprefix(PREFIX)
            key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError("a secret is whsec_ followed by base64; this one is not") from None
    elif isinstance(secret, bytes):
        key = secret
    else:
        raise ConfigError(f"a secret is a str or bytes, not {type(secret).__name__}")
    if not SHORTEST <= len(key) <= LONGEST:
        raise ConfigError(f"a key has {SHORTEST} to {LONGEST} bytes, this one {len(key)}")
    return key


def _signature(key: bytes, message_id: str, seconds: str, body: bytes) -> str:
    signed = b"%b.%b.%b" % (message_id.encode(), seconds.encode(), body)
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _headers(headers: Mapping[str, str]) -> tuple[str, str, str]:
    found: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower() if isinstance(name, str) else ""
        if lower in (ID, TIMESTAMP, SIGNATURE):
            if lower in found or not isinstance(value, str) or len(value) > _MAX_HEADER:
                raise InvalidWebhook(f"its header {lower} can't be read")
            found[lower] = value
    for each in (ID, TIMESTAMP, SIGNATURE):
        if each not in found:
            raise InvalidWebhook(f"it has no header {each}")
    if not _ID.fullmatch(found[ID]) or not _TIMESTAMP.fullmatch(found[TIMESTAMP]):
        raise InvalidWebhook("its id or timestamp can't be read")
    return found[ID], found[TIMESTAMP], found[SIGNATURE]
