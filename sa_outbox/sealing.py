"""Secrets in the database: sealed with a key that is not in it, or only the name of a variable.

``env:ACME_SECRET`` names a variable of the consumer's environment. ``sealed:...`` is encrypted
(Fernet: AES and HMAC) with the first key of ``SA_OUTBOX_SECRET_KEY``; any of its keys opens it, so
that the key itself can be replaced. Whoever reads the table, or a dump of it, has no secret.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from .errors import ConfigError

VARIABLE: Final = "SA_OUTBOX_SECRET_KEY"
_SEALED, _NAMED = "sealed:", "env:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def new_key() -> str:
    """A key for ``SA_OUTBOX_SECRET_KEY``."""
    found: str = _fernet().Fernet.generate_key().decode()
    return found


def seal(secret: str) -> str:
    """Encrypt *secret*. Raises :class:`ConfigError` if there is no key."""
    return _SEALED + str(_keys().encrypt(secret.encode()).decode())


def named(variable: str) -> str:
    """A secret that stays in the environment, under this name."""
    if not _NAME.fullmatch(variable):
        raise ConfigError(f"{variable!r} is not the name of an environment variable")
    return _NAMED + variable


def reveal(stored: str) -> str:
    """The secret itself. Raises :class:`ConfigError` if it can't be had here; without it."""
    if stored.startswith(_NAMED):
        name = stored.removeprefix(_NAMED)
        secret = os.environ.get(name)
        if not secret:
            raise ConfigError(f"the environment variable {name}, which has a secret, is not set")
        return secret
    if not stored.startswith(_SEALED):
        raise ConfigError("a stored secret is neither sealed nor the name of a variable")
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - _keys() says what is missing

    try:
        return str(_keys().decrypt(stored.removeprefix(_SEALED).encode()).decode())
    except InvalidToken:
        raise ConfigError(
            f"none of the keys in {VARIABLE} opens a stored secret: it was sealed with another one"
        ) from None


def shown(stored: str) -> str:
    """For people: where the secret is, never what it is."""
    return stored if stored.startswith(_NAMED) else "sealed"


def _keys() -> Any:
    given = [each.strip() for each in os.environ.get(VARIABLE, "").split(",") if each.strip()]
    if not given:
        raise ConfigError(
            f"{VARIABLE} is not set: it has the key that seals secrets. Make one with"
            " `sa-outbox endpoints new-key`, or keep the secret itself in the environment"
            " (--secret-env)"
        )
    fernet = _fernet()
    try:
        return fernet.MultiFernet([fernet.Fernet(each.encode()) for each in given])
    except ValueError:
        raise ConfigError(
            f"{VARIABLE} has a key that is none: 32 bytes in URL-safe base64; make one with"
            " `sa-outbox endpoints new-key`"
        ) from None


def _fernet() -> Any:
    try:
        from cryptography import fernet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            'sealing secrets needs cryptography: pip install "sa_outbox[http]"'
        ) from error
    return fernet
