"""The headers of a webhook: the message's own, sanitised, and ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from sa_outbox._version import __version__
from sa_outbox.errors import Undeliverable

if TYPE_CHECKING:
    from sa_outbox.relay.message import Message

_NAME = re.compile(r"[a-z0-9!#$&'*+.^_`|~-]{1,100}")
_PLAIN = "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_OURS = frozenset(
    {
        *("accept-encoding", "authorization", "connection", "content-encoding", "content-length"),
        *("content-type", "cookie", "expect", "host", "keep-alive", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
        *("webhook-id", "webhook-signature", "webhook-timestamp", "forwarded", "x-forwarded-for"),
    }
)
"""Dropped from an event's headers: they control how the request is read, and who sends it."""


def headers_of(message: Message) -> dict[str, str]:
    """Lower-case names with hyphens: some servers drop names with underscores.

    In values, everything that is not visible ASCII is percent-encoded, as CloudEvents requires, and
    so are space, ``"`` and ``%``: a line end can't get into the request. Raises ``Undeliverable``
    for an invalid name.
    """
    headers: dict[str, str] = {}
    for given, value in message.headers.items():
        name = given.lower().replace("_", "-")
        if not _NAME.fullmatch(name):
            raise Undeliverable(f"invalid HTTP header name {given!r}", kind="serialization")
        if name not in _OURS:
            headers[name] = quote(value, safe=_PLAIN, errors="replace")
    headers["content-type"] = quote(message.content_type, safe=_PLAIN + " ")
    headers["content-length"] = str(len(message.body))
    headers["accept-encoding"] = "identity"
    headers["user-agent"] = f"sa_outbox/{__version__}"
    return headers
