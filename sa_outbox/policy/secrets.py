"""What looks like a secret, by its shape or by its field's name; and a check that refuses it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError, SecretFound
from ..event.codec import decode, encode
from ..event.objects import step

if TYPE_CHECKING:
    from ..event.event import Event

BEARER: Final = re.compile(r"(?i)(\bbearer\s{1,5})[\w.~+/=-]{16,}")
JSON_WEB_TOKEN: Final = re.compile(r"\beyJ[\w-]{10,1000}\.[\w-]{10,}(?:\.[\w-]*)?")
# Webhooks, AWS, Stripe, GitHub, GitLab, Slack, Google, OpenAI and Anthropic, SendGrid, npm, PyPI,
# Hugging Face, DigitalOcean, Shopify, age, connection strings of Azure.
VENDOR_KEY: Final = re.compile(
    r"\b(?:whsec_[\w+/=-]{8,}|(?:AKIA|ASIA)[0-9A-Z]{16}\b|[sr]k_(?:live|test)_\w{8,}"
    r"|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{8,}"
    r"|AIza[\w-]{30,}|sk-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|npm_\w{30,}"
    r"|pypi-[\w-]{30,}|hf_\w{30,}|do[opr]_v1_\w{30,}|shp(?:at|ca|pa|ss)_\w{30,}"
    r"|AGE-SECRET-KEY-1\w{20,}"
    r"|(?:AccountKey|SharedAccessKey)=[\w+/=-]{16,}|SharedAccessSignature=[^\s'\";]{16,})"
)
"""A key with the prefix of a well-known service."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_PASSWORD_IN_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:[^\s/@]{1,200}@")
_SHAPES: Final = (VENDOR_KEY, JSON_WEB_TOKEN, BEARER, _PRIVATE_KEY, _PASSWORD_IN_URL)
_NAMES: Final = re.compile(
    r"(?:pass_?word|passwd|passphrase|pwd|secret|token|credentials?|authorization|cookie"
    r"|(?:api|access|private|secret|signing|encryption)[_-]?key)$",
    re.IGNORECASE,
)
_LARGEST, _DEEPEST = 250_000_000, 200  # what was accepted is not refused here for its size


@dataclass(frozen=True, kw_only=True)
class NoSecrets:
    """Refuses an event whose payload or headers seem to hold a secret. For ``check_event=``::

        outbox = Outbox(check_event=NoSecrets(allow=("next_page_token",)))

    Refused are text in a field whose name ends like ``password``, ``secret``, ``token`` or
    ``api_key``, and text (a value or a name) in which there is a private key, a JSON web token, a
    key with the prefix of a well-known service, or a URL with a password. It is a net, not a wall:
    a secret without a shape, in a field with another name, passes.
    """

    allow: tuple[str, ...] = ()
    """Names of fields, at any depth, that may hold anything."""

    def __post_init__(self) -> None:
        if not isinstance(self.allow, (tuple, list)) or not all(
            isinstance(each, str) for each in self.allow
        ):
            raise ConfigError(f"allow must be a tuple of names of fields, not {self.allow!r}")
        object.__setattr__(self, "allow", tuple(self.allow))

    def __call__(self, event: Event[Any]) -> None:
        for where, value in (("payload", event.payload), ("headers", dict(event.headers))):
            path = self._find(decode(encode(value, max_bytes=_LARGEST, max_depth=_DEEPEST)), "$")
            if path is not None:
                raise SecretFound(event.event_type, path, field=where)

    def _find(self, value: Any, path: str, name: str = "") -> str | None:
        """The path to the first secret in *value*, the value of the field *name*."""
        if isinstance(value, str):
            return path if _is_secret(name, value) else None
        if isinstance(value, dict):
            if any(_has_shape(key) for key in value):
                return path  # not the key: errors are logged
            each = ((path + step(key), key, inner) for key, inner in value.items())
        elif isinstance(value, list):
            each = ((f"{path}[{at}]", name, inner) for at, inner in enumerate(value))
        else:
            return None
        found = (
            self._find(inner, place, key) for place, key, inner in each if key not in self.allow
        )
        return next((place for place in found if place is not None), None)


def _is_secret(name: str, value: str) -> bool:
    if _NAMES.search(name) and any(each.isalnum() for each in value):  # not one that is masked
        return True
    return _has_shape(value)


def _has_shape(text: str) -> bool:
    return any(shape.search(text) for shape in _SHAPES)
