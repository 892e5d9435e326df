"""What a response means. Pure: from status and headers to the message's outcome.

=======================================  =========================================================
2xx                                      it has the event: done, whatever the body says
410                                      the endpoint is gone: a dead letter, as are the next ones;
                                         optionally retry
429, 503 with ``Retry-After``            retry after that time, at most a day; others wait too
408, 425, 429, 5xx                       retry according to the policy
3xx                                      retry: redirects are not followed, and maintenance ends
other 4xx                                it will never accept it: a dead letter; optionally retry
=======================================  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_outbox.errors import RelayError, Undeliverable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_outbox.relay.message import Answer

GONE = 410
AWAY = frozenset({502, 503, 504})
"""Sent by a proxy in front of the endpoint: they concern the endpoint, not this event."""
MAX_SHOWN = 500
"""Characters of a response body that are kept."""
_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, as far as it was read."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class BadAnswer(RelayError):
    """The endpoint answered, but not with success."""

    def __init__(self, text: str, response: Reply) -> None:
        super().__init__(text)
        self.response = response
        """Where the consumer finds ``Retry-After``. It waits for the longer of that and its policy:
        a response that asks for no delay must not use up the attempts in a moment."""


def judge(reply: Reply, *, retry_4xx: bool, retry_410: bool) -> Answer:
    status = reply.status
    if 200 <= status < 300:
        return None
    said = f"HTTP {status}{excerpt(reply.body)}"
    if status == GONE:
        gone = Undeliverable(f"the endpoint is gone: {said}")
        return BadAnswer(said, reply) if retry_410 else gone
    if 400 <= status < 500 and status not in _AGAIN and not retry_4xx:
        return Undeliverable(said)
    return BadAnswer(said, reply)


def excerpt(body: bytes) -> str:
    """The beginning of a body as text that is safe to store and show: a stranger wrote it."""
    text = body[: 4 * MAX_SHOWN].decode(errors="backslashreplace")
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:MAX_SHOWN])
    shown = shown[:MAX_SHOWN] + (" ..." if len(text) > MAX_SHOWN else "")
    return f": {shown}" if shown.strip() else ""
