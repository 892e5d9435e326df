"""To NATS JetStream: streams that confirm and store. Plain NATS does neither, and is refused.

The messages of a wave are published together; the stream answers each of them. ``Nats-Msg-Id`` is
the ``event_id``: what is sent again within the stream's window adds nothing.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import msgspec

from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.policy.checks import check_span

from .errors import missing, not_serializable, too_large, unavailable, with_cause
from .nats_link import FORBIDDEN, Link, Wave, open_link
from .words import NATS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .message import Answer, Message

LONGEST_SUBJECT = 1000
MAX_NAMES = 10_000
"""How many valid header names are remembered."""
_SUBJECT = re.compile(r"[^\s.*>\x00-\x20\x7f]+(\.[^\s.*>\x00-\x20\x7f]+)*")
_THEIRS = ("$", "_INBOX.")
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SCHEMES = ("nats", "tls", "ws", "wss")
_TOO_LARGE = (10054, 10097)
"""The message or its headers exceed what the stream accepts."""
_OTHER_STREAM = 10060


class JetStream:
    """Publishes to NATS JetStream streams. ``to=`` is a subject.

    *stream* is the one that must take the messages: any other is refused. *timeout* limits
    connecting, and each wave. *connect_options* are those of ``nats.connect``: ``tls``,
    ``user_credentials``, ``token`` and the like.
    """

    keeps_order = False
    takes_batches = True
    attribute_prefix = "ce-"
    protocol = "nats"

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        stream: str | None = None,
        domain: str | None = None,
        timeout: timedelta = timedelta(seconds=5),
        connect_options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import nats.aio.client  # noqa: F401, PLC0415 - of an extra
        except ImportError as error:
            raise missing("JetStream", "nats") from error
        try:
            self._servers = [servers] if isinstance(servers, str) else list(servers)
            parts = [urlsplit(each) for each in self._servers]
            places = [f"{each.hostname}:{each.port or 4222}" for each in parts]
            good = all(each.scheme in _SCHEMES and each.hostname for each in parts)
        except (AttributeError, TypeError, ValueError):
            good, places = False, []
        if not good or not places:
            # Without the URL: it may contain a password.
            raise ConfigError("servers of JetStream must be like nats://host:4222, or tls://")
        check_span("timeout of JetStream", timeout)
        if stream is not None and not re.fullmatch(r"[^\s.*>/\\]+", stream):
            raise ConfigError(f"stream of JetStream has no spaces, dots or wildcards: {stream!r}")
        self._where = ", ".join(places)
        self._stream = stream
        self._api = "$JS.API" if domain is None else f"$JS.{domain}.API"
        self._timeout = timeout.total_seconds()
        self._options = dict(connect_options or {})
        self._names: dict[str, str] = {}
        """Header names, as given and as sent."""
        self._link: Link | None = None
        self._opening: anyio.Lock | None = None

    def __repr__(self) -> str:
        return f"JetStream({self._where!r})"

    quote: staticmethod[[str], str] = staticmethod(NATS.one)
    quote_type: staticmethod[[str], str] = staticmethod(NATS.some)

    def check_destination(self, destination: str) -> None:
        """Refuse anything that is not a subject for a single message."""
        if not isinstance(destination, str) or not _SUBJECT.fullmatch(destination):
            raise ConfigError(
                f"a subject is words with dots between, no spaces or wildcards: {destination!r}"
            )
        if destination.startswith(_THEIRS):
            raise ConfigError(f"the subject is one of the server's own: {destination!r}")
        if len(destination.encode()) > LONGEST_SUBJECT:
            raise ConfigError(
                f"a subject has at most {LONGEST_SUBJECT} bytes: {destination[:80]!r}..."
            )

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Publish *messages*, and wait for their streams' answers."""
        try:
            link = await self._connected()
        except RelayError as error:
            return [error] * len(messages)
        wave = Wave(len(messages))
        try:
            answers = await self._publish(link, wave, messages)
            with anyio.move_on_after(self._timeout):
                await link.finish(wave)
        finally:
            link.forget(wave)
        if wave.waiting:
            await self._drop(link)
        return await self._judge_all(link, wave, messages, answers)

    async def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            await self._drop(self._link)

    async def _connected(self) -> Link:
        if self._opening is None:
            self._opening = anyio.Lock()
        async with self._opening:
            if self._link is None or self._link.is_closed:
                self._link = await open_link(
                    self._servers, self._api, self._timeout, self._options, self._where
                )
            return self._link

    async def _drop(self, link: Link) -> None:
        if self._link is link:
            self._link = None
        await link.close()

    async def _publish(self, link: Link, wave: Wave, messages: Sequence[Message]) -> list[Answer]:
        """What could not be published is answered at once; the rest is answered by the wave."""
        answers: list[Answer] = [None] * len(messages)
        for place, message in enumerate(messages):
            try:
                headers, size = self._headers(message)
                body = bytes(message.body)
                if size > link.max_payload:
                    answers[place] = too_large(message, size, link.max_payload)
                    continue
            except (AttributeError, TypeError, ValueError) as error:
                answers[place] = not_serializable(message, error)
                continue
            try:
                await link.publish(wave, place, message.destination, body, headers)
            except Exception as error:  # noqa: BLE001 - whatever the client raises: it is not sent
                answers[place] = unavailable(f"NATS at {self._where}", error)
                for later in range(place + 1, len(messages)):
                    answers[later] = answers[place]
                break
        return answers

    def _headers(self, message: Message) -> tuple[dict[str, str], int]:
        """The headers, and what the server counts: their bytes and the body's."""
        names = self._names
        headers = {
            names.get(name) or self._name(name): value for name, value in message.headers.items()
        }
        if message.key is not None and "key" not in headers:
            headers["key"] = message.key
        headers["content-type"] = message.content_type
        headers["Nats-Msg-Id"] = str(message.event.event_id)
        if self._stream is not None:
            headers["Nats-Expected-Stream"] = self._stream
        together = "".join((*headers, *headers.values()))
        if "\r" in together or "\n" in together:
            raise ValueError("a header has a line break")
        return headers, 12 + len(together.encode()) + 4 * len(headers) + len(message.body)

    def _name(self, name: str) -> str:
        if not _HEADER.fullmatch(name):
            raise ValueError(f"invalid header name: {name!r}")
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        # What begins like this is an instruction to the server: one of them purges the stream.
        sent = f"x-{name}" if name.lower().startswith("nats-") else name
        self._names[name] = sent
        return sent

    async def _judge_all(
        self, link: Link, wave: Wave, messages: Sequence[Message], answers: list[Answer]
    ) -> list[Answer]:
        known: dict[str, Answer] = {}
        for place, reply in enumerate(wave.replies):
            if answers[place] is not None:
                continue
            subject = messages[place].destination
            if reply is None:
                cause = link.failure or TimeoutError(f"no answer within {self._timeout:g} s")
                answers[place] = unavailable(f"NATS at {self._where}", cause)
            elif reply is FORBIDDEN:
                answers[place] = RelayError(f"NATS at {self._where} forbids sending to {subject!r}")
            elif reply.headers and reply.headers.get("Status") == "503":
                if subject not in known:
                    known[subject] = await self._why_nobody(link, subject)
                answers[place] = known[subject]
            elif b'"error"' in reply.data:
                answers[place] = self._refused(messages[place], reply.data)
        return answers

    async def _why_nobody(self, link: Link, subject: str) -> Answer:
        """Nobody took what was published: does the subject have no stream, or is the stream
        unavailable?

        A restarting server gives the same answer as one without such a stream. The list of streams
        distinguishes them; if it is unavailable, nothing is given up.
        """
        question = msgspec.json.encode({"subject": subject})
        try:
            found = await link.ask(f"{self._api}.STREAM.NAMES", question, self._timeout)
        except Exception as error:  # noqa: BLE001 - any failure means there is no answer
            return unavailable(f"NATS at {self._where}", error)
        if "error" in found:
            return RelayUnavailable(f"NATS at {self._where}: {_described(found['error'])}")
        if found.get("streams"):
            return RelayUnavailable(f"the stream of {subject!r} is there and does not answer")
        return Undeliverable(f"no stream takes {subject!r}", kind="unknown-destination")

    def _refused(self, message: Message, data: bytes) -> Answer:
        try:
            error = msgspec.json.decode(data)["error"]
            code, number, text = error["code"], error.get("err_code"), _described(error)
        except (KeyError, TypeError, ValueError) as wrong:
            return with_cause(RelayError(f"NATS at {self._where} answered {data[:200]!r}"), wrong)
        where = f"subject {message.destination!r}: {text}"
        if number in _TOO_LARGE:
            return Undeliverable(where, kind="serialization")
        if number == _OTHER_STREAM:
            return Undeliverable(where, kind="unknown-destination")
        return RelayUnavailable(where) if code >= 500 else RelayError(where)


def _described(error: Mapping[str, Any]) -> str:
    return f"{error.get('description')} ({error.get('err_code')})"
