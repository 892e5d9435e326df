"""Secrets in the database: sealed with a key that is not in it, or just the name of a variable.

``sealed:...`` is encrypted and authenticated (AES-256-GCM) with the first key of
``SA_OUTBOX_SECRET_KEY``; any of its keys opens it, so that the key itself can be rotated. It opens
only where it was sealed for: endpoint, field and URL are authenticated with it, so a value copied
into another row, or whose row's URL was changed, is useless.

``env:SA_OUTBOX_WEBHOOK_ACME`` names a variable of the consumer's environment. Only names that the
program allows are read: someone who can write the row must not get at arbitrary variables.

Reading the table, or a dump of it, reveals no secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VARIABLE: Final = "SA_OUTBOX_SECRET_KEY"
READABLE: Final = ("SA_OUTBOX_WEBHOOK_*",)
"""Variables that a stored secret may refer to, unless the program configures others."""
SHORTEST_PREFIX: Final = 4
_SEALED, _NAMED = "sealed:1:", "env:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_NONCE = 12

Field: TypeAlias = Literal["secret", "previous secret", "bearer"]


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a secret belongs. Sealed for one binding, it opens for no other."""

    endpoint: str
    url: str
    field: Field

    def __str__(self) -> str:
        return f"the {self.field} of endpoint {self.endpoint!r}"

    @property
    def associated(self) -> bytes:
        """As JSON, so that no two bindings look alike."""
        return json.dumps(["sa_outbox endpoint", self.endpoint, self.field, self.url]).encode()


def new_key() -> str:
    """A key for ``SA_OUTBOX_SECRET_KEY``."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def seal(secret: str, binding: Binding) -> str:
    """Encrypt *secret* for this binding only. Raises :class:`ConfigError` if there is no key."""
    name, key = next(iter(_keys().items()))
    nonce = os.urandom(_NONCE)
    data = nonce + _cipher(key).encrypt(nonce, secret.encode(), binding.associated)
    return f"{_SEALED}{name}:{base64.urlsafe_b64encode(data).decode()}"


def named(variable: str) -> str:
    """A secret that stays in the environment, under this name."""
    if not _NAME.fullmatch(variable):
        raise ConfigError(f"{variable!r} is not the name of an environment variable")
    return _NAMED + variable


def is_named(stored: str) -> bool:
    return stored.startswith(_NAMED)


def is_current(stored: str) -> bool:
    """Whether it was sealed with the current key; true for the name of a variable too."""
    return is_named(stored) or stored.startswith(f"{_SEALED}{next(iter(_keys()))}:")


def reveal(stored: str, binding: Binding, readable: Sequence[str] = READABLE) -> str:
    """The secret in plain text. Raises :class:`ConfigError`, without the secret, if it is
    unavailable here."""
    if is_named(stored):
        return _read(stored.removeprefix(_NAMED), binding, readable)
    if not stored.startswith(_SEALED):
        raise ConfigError(
            f"{binding} is neither sealed nor the name of a variable; {_recover(binding)}"
        )
    name, _, data = stored.removeprefix(_SEALED).partition(":")
    keys = _keys()
    if name not in keys:
        raise ConfigError(
            f"none of the keys in {VARIABLE} opens {binding}: it was sealed with another one. Add"
            f" that key there; if it is lost, {_recover(binding)}"
        )
    return _opened(keys[name], data, binding)


def check(stored: str, binding: Binding) -> None:
    """Raises :class:`ConfigError` for a value that must not be stored there. Of a variable, only
    the name is checked: its value is the consumer's."""
    if is_named(stored) and binding.field != "bearer":
        named(stored.removeprefix(_NAMED))
    else:
        reveal(stored, binding)


def moved(stored: str, before: Binding, after: Binding) -> str:
    """Reseal for another binding or with a newer key. The name of a variable is kept."""
    return stored if is_named(stored) else seal(reveal(stored, before), after)


def check_readable(patterns: Iterable[str]) -> tuple[str, ...]:
    """*patterns* are names of variables, or prefixes of names followed by a ``*``. Raises
    :class:`ConfigError` for anything else, and for a pattern that would expose the keys."""
    if isinstance(patterns, str):
        raise ConfigError(f"secrets_from_env must be a tuple of names: {patterns!r}")
    found = tuple(patterns)
    for each in found:
        if not isinstance(each, str) or not _PATTERN.fullmatch(each):
            raise ConfigError(
                "secrets_from_env has names of variables, or prefixes of names with a * at"
                f" its end: {each!r}"
            )
        if each.endswith("*") and len(each) <= SHORTEST_PREFIX:
            raise ConfigError(
                f"secrets_from_env: {each!r} allows too much, give {SHORTEST_PREFIX} characters or"
                " more before the *"
            )
        if is_readable(VARIABLE, (each,)):
            raise ConfigError(
                f"secrets_from_env: {each!r} allows {VARIABLE}, the key of all others"
            )
    return found


def is_readable(name: str, patterns: Sequence[str]) -> bool:
    return any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns
    )


def shown(stored: str) -> str:
    """For people: where the secret is, never what it is."""
    return stored if is_named(stored) else "sealed"


def _read(name: str, binding: Binding, readable: Sequence[str]) -> str:
    if binding.field == "bearer":
        # A signing secret never leaves the process. A token does, to whatever URL is in the row.
        raise ConfigError(f"{binding} must be sealed; {_recover(binding)}")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{binding} names no environment variable; {_recover(binding)}")
    if not is_readable(name, readable):
        raise ConfigError(
            f"{binding} is to be read from the environment variable {name}, which this program does"
            f" not allow. If it may be read, add it to outbox.webhooks(secrets_from_env=...); if"
            f" you don't know it, someone changed the row: {_recover(binding)}"
        )
    secret = os.environ.get(name, "").strip()
    if not secret:
        raise ConfigError(f"the environment variable {name}, {binding}, is not set")
    return secret


def _opened(key: bytes, data: str, binding: Binding) -> str:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra, and it is there

    try:
        raw = base64.b64decode(data.encode(), altchars=b"-_", validate=True)
        return str(cipher.decrypt(raw[:_NONCE], raw[_NONCE:], binding.associated).decode())
    except (InvalidTag, ValueError):
        raise ConfigError(
            f"{binding} does not open: it was changed, or sealed for another endpoint, field or"
            " URL. If the URL was changed by hand, put the old one back and use `sa-outbox"
            f" endpoints move`; else {_recover(binding)}"
        ) from None


def _recover(binding: Binding) -> str:
    return (
        f"check its URL, then remove the endpoint {binding.endpoint!r} and add it again: it keeps"
        " its place in the log"
    )


def _keys() -> dict[str, bytes]:
    """Keys by the name stored with what they seal. The first one seals."""
    given = [each.strip() for each in os.environ.get(VARIABLE, "").split(",") if each.strip()]
    if not given:
        raise ConfigError(
            f"{VARIABLE} is not set: it holds the key that seals secrets. Create one with"
            " `sa-outbox endpoints new-key`, or keep the secret itself in the environment"
            " (--secret-env)"
        )
    keys = [_key(each) for each in given]
    return {hashlib.sha256(b"sa_outbox key" + each).hexdigest()[:8]: each for each in keys}


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError(
            f"{VARIABLE} has an invalid key: 32 bytes in URL-safe base64; create one with"
            " `sa-outbox endpoints new-key`"
        )
    return key


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            'sealing secrets needs cryptography: pip install "sa_outbox[http]"'
        ) from error
    return AESGCM(key)
