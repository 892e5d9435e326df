"""A connection to NATS, and who waits for which answer on it.

The client's own way to wait for many answers loses those that are errors, and it reconnects
forever; here a lost connection is finished, and the next message opens a new one.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from sa_outbox.errors import ConfigError, RelayUnavailable

from .errors import unavailable, with_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORBIDDEN = "forbidden"
"""The reply to a message that this user may not publish."""
RECHECK_SECONDS = 0.5
"""Seconds between checks: the client does not always report that a connection is over."""
NOT_ENABLED = (10039, 10076)
"""No JetStream on this server, or not for this account."""
_VIOLATION = re.compile(r"permissions violation for publish to \"?([^\s\"']+)", re.IGNORECASE)


class Wave:
    """Messages that were published together, and their answers."""

    def __init__(self, size: int) -> None:
        self.replies: list[Any] = [None] * size
        self.waiting: dict[str, tuple[int, str]] = {}
        """Reply subject to the index of the message, and its subject."""
        self.all_here: asyncio.Event = asyncio.Event()

    def answer(self, inbox: str, reply: object) -> None:
        place, _ = self.waiting.pop(inbox)
        self.replies[place] = reply
        if not self.waiting:
            self.all_here.set()


class Link:
    """One connection. It is opened once."""

    def __init__(self, client: Any) -> None:
        self.failure: BaseException | None = None
        """Why it is over."""
        self._client = client
        self._waves: dict[str, Wave] = {}
        self._inbox = ""
        self._number = 0

    @property
    def is_closed(self) -> bool:
        return not self._client.is_connected

    @property
    def max_payload(self) -> int:
        return int(self._client.max_payload)

    async def open(self, servers: Sequence[str], options: Mapping[str, Any]) -> None:
        # One try per server: the consumer waits, reports it, and tries again.
        await self._client.connect(
            list(servers),
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            **options,
            error_cb=self._note,
            closed_cb=self._give_up,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._arrived)

    async def publish(
        self, wave: Wave, place: int, subject: str, body: bytes, headers: dict[str, str]
    ) -> None:
        self._number += 1
        inbox = f"{self._inbox}.{self._number}"
        wave.waiting[inbox] = place, subject
        self._waves[inbox] = wave
        try:
            await self._client.publish(subject, body, reply=inbox, headers=headers)
        except BaseException:
            del wave.waiting[inbox], self._waves[inbox]
            raise

    async def finish(self, wave: Wave) -> None:
        """Return when all answers of *wave* have arrived, or can't arrive anymore."""
        while wave.waiting and not self.is_closed:
            wave.all_here.clear()
            with anyio.move_on_after(RECHECK_SECONDS):
                await wave.all_here.wait()

    def forget(self, wave: Wave) -> None:
        for inbox in wave.waiting:
            self._waves.pop(inbox, None)

    async def ask(self, subject: str, question: bytes, seconds: float) -> dict[str, Any]:
        reply = await self._client.request(subject, question, timeout=seconds)
        found: dict[str, Any] = msgspec.json.decode(reply.data)
        return found

    async def close(self) -> None:
        # Even if cancelled: otherwise its tasks would continue. It has nothing to say that must not
        # be lost.
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            try:
                await self._client.close()
            except Exception as error:  # noqa: BLE001 - it is over either way
                self.failure = self.failure or error

    async def _arrived(self, reply: Any) -> None:
        if not (reply.headers or (b'"stream"' in reply.data or b'"error"' in reply.data)):
            return  # from someone else who listens to the subject and replies
        wave = self._waves.pop(reply.subject, None)
        if wave is not None:
            wave.answer(reply.subject, reply)

    async def _note(self, error: Exception) -> None:
        self.failure = error
        found = _VIOLATION.search(str(error))
        if found is None:
            return
        for inbox, wave in list(self._waves.items()):
            if wave.waiting[inbox][1].lower() == found[1].lower():
                del self._waves[inbox]
                wave.answer(inbox, FORBIDDEN)

    async def _give_up(self) -> None:
        for wave in self._waves.values():
            wave.all_here.set()


async def open_link(
    servers: Sequence[str], api: str, seconds: float, options: Mapping[str, Any], where: str
) -> Link:
    """Connect, and check that there is a JetStream. Raises ``RelayUnavailable``."""
    from nats.aio.client import Client  # noqa: PLC0415 - of an extra

    link = Link(Client())
    try:
        with anyio.fail_after(seconds):
            await link.open(servers, {"connect_timeout": seconds, **options})
        await _see_jetstream(link, api, min(seconds, 1.0), where)
    except BaseException as error:
        await link.close()
        if isinstance(error, RelayUnavailable) or not isinstance(error, Exception):
            raise
        # The client reports that it has no servers left; it reported what was wrong with them
        # before.
        raise unavailable(f"NATS at {where}", link.failure or error) from (link.failure or error)
    return link


async def _see_jetstream(link: Link, api: str, seconds: float, where: str) -> None:
    import nats.errors  # noqa: PLC0415 - of an extra

    try:
        said = await link.ask(f"{api}.INFO", b"", seconds)
    except nats.errors.TimeoutError:
        return  # a user who may publish but not query
    except nats.errors.NoRespondersError:
        said = {"error": {"err_code": NOT_ENABLED[0]}}
    if said.get("error", {}).get("err_code") in NOT_ENABLED:
        text = (
            f"there is no JetStream at {where}, or not for this account: plain NATS confirms "
            "nothing, and what nobody listens to is lost. Start the server with -js"
        )
        raise with_cause(RelayUnavailable(text), ConfigError(text))
