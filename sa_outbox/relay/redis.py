"""To Redis Streams, and servers that speak its protocol (Valkey).

A batch is one call of a script, and nobody sees a part of it. The script remembers the ``event_id``
of each message for a while, atomically with the message: what is sent again after a lost answer
adds nothing. So the relay itself keeps the order of a batch.
"""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.policy.checks import check_span

from .errors import missing, not_serializable, too_large, unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message import Answer, Message

SCRIPT = """
local batch, seconds, most = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local refused = {#batch}
for place, each in ipairs(batch) do
  local stream, seen, fields = each[1], each[2], each[3]
  fields[#fields + 1] = 'body'
  fields[#fields + 1] = each[4]
  if seconds == 0 or redis.call('SET', seen, '', 'NX', 'EX', seconds) then
    local added
    if most > 0 then
      added = redis.pcall('XADD', stream, 'MAXLEN', '~', most, '*', unpack(fields))
    else
      added = redis.pcall('XADD', stream, '*', unpack(fields))
    end
    if type(added) == 'table' and added.err then
      if seconds > 0 then redis.call('DEL', seen) end
      refused[#refused + 1] = place
      refused[#refused + 1] = added.err
      if not string.find(added.err, '^-?WRONGTYPE') then
        refused[1] = place
        return refused
      end
    end
  end
end
return refused
"""
"""Returns how far it got, and the index and error of each refused message: with an answer for each,
reading them would take longer than adding them.

When one message fails, those after it are not added: their order would be lost. A key that is not a
stream will never accept any, so it does not block the others.
"""

_SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
_AWAY = {
    *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM"),
    *("NOREPLICAS", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE", "WRONGPASS"),
}
"""Server errors that are temporary, or that an operator can fix: no message is to blame."""
_OURS = ("event_id", "key", "content_type", "body")
_CODE = re.compile(r"-?([A-Z]+)\b")
_TAG = re.compile(r"\{[^}]+\}")
LONGEST_NAME = 512
MAX_HEADERS = 2000
"""Lua limits how much can be passed to one command."""
AT_ONCE = 8 * 1024 * 1024
"""Bytes per script call: while it runs, Redis does nothing else."""


class RedisStreams:
    """Adds messages to streams. ``to=`` names the stream.

    *max_length* trims a stream to about that many entries, oldest first. *deduplicate_for* is how
    long an ``event_id`` is remembered; None for not at all. *timeout* limits each call.
    """

    keeps_order = True
    takes_batches = True
    attribute_prefix = "ce_"
    protocol = "redis"

    def __init__(
        self,
        url: str,
        *,
        max_length: int | None = None,
        deduplicate_for: timedelta | None = timedelta(days=1),
        max_message_bytes: int = 64 * 1024 * 1024,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        try:
            import redis.asyncio as client  # noqa: PLC0415 - of an extra
            from redis.asyncio.connection import parse_url  # noqa: PLC0415 - of an extra
        except ImportError as error:
            raise missing("RedisStreams", "redis") from error
        try:
            parse_url(url)
            parts = urlsplit(url)
            where = f"{parts.hostname or ''}:{parts.port or 6379}{parts.path}"
            self._where = parts.path if parts.scheme == "unix" else where
        except (AttributeError, TypeError, ValueError):
            # Without the reason: it may quote a part of the password.
            raise ConfigError(
                "the URL of RedisStreams must be redis://host:port/db, rediss:// or unix://path"
            ) from None
        if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
            raise ConfigError(f"max_length of RedisStreams must be above zero: {max_length!r}")
        if deduplicate_for is not None and deduplicate_for < timedelta(seconds=1):
            raise ConfigError(
                f"deduplicate_for of RedisStreams must be a second or more: {deduplicate_for!r}"
            )
        check_span("timeout of RedisStreams", timeout)
        self._redis: Any = client
        self._url = url
        self._trim = max_length or 0
        self._seconds = 0 if deduplicate_for is None else int(deduplicate_for.total_seconds())
        self._most = max_message_bytes
        self._timeout = timeout.total_seconds()
        self._client: Any = None
        self._encode = msgspec.msgpack.Encoder().encode

    def __repr__(self) -> str:
        return f"RedisStreams({self._where!r})"

    def check_destination(self, destination: str) -> None:
        """Refuse an invalid stream name."""
        if not isinstance(destination, str) or not destination:
            raise ConfigError(f"a stream has a name: {destination!r}")
        if not destination.isprintable() or " " in destination:
            raise ConfigError(f"no spaces in the name of a stream: {destination!r}")
        if len(destination.encode()) > LONGEST_NAME:
            raise ConfigError(
                f"the name of a stream has at most {LONGEST_NAME} bytes: {destination[:80]!r}..."
            )

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Add *messages*, a few megabytes at a time."""
        answers: list[Answer] = [None] * len(messages)
        places: list[int] = []
        parts: list[bytes] = []
        size, stream = 0, ""
        for place, message in enumerate(messages):
            part = self._part(message)
            if not isinstance(part, bytes):
                answers[place] = part
                continue
            if parts and size + len(part) > AT_ONCE:
                if not await self._call(stream, places, parts, answers):
                    failed = answers[places[-1]]
                    return [*answers[:place], *[failed] * (len(messages) - place)]
                places, parts, size = [], [], 0
            stream = message.destination if not parts else stream
            places.append(place)
            parts.append(part)
            size += len(part)
        if parts:
            await self._call(stream, places, parts, answers)
        return answers

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _part(self, message: Message) -> bytes | Undeliverable:
        """The message as the script reads it."""
        headers, event_id = message.headers, str(message.event.event_id)
        fields = ["event_id", event_id, "content_type", message.content_type]
        if message.key is not None:
            fields += ("key", message.key)
        for name, value in headers.items():
            if name in _OURS:
                if (name, value) in (("event_id", event_id), ("key", message.key)):
                    continue
                name = f"header:{name}"  # noqa: PLW2901 - no field is there twice
            fields += (name, value)
        if len(headers) > MAX_HEADERS:
            text = f"event {event_id} has {len(headers)} headers, at most {MAX_HEADERS} fit"
            return Undeliverable(text, kind="serialization")
        try:
            "".join(fields)  # nothing but text: a script that fails fails for the whole batch
            seen = _seen(message.destination, event_id)
            part = self._encode((message.destination, seen, fields))
            # The script has no binary type: a body is a string of any bytes, the fourth field.
            part = b"".join(
                (b"\x94", part[1:], b"\xdb", len(message.body).to_bytes(4, "big"), message.body)
            )
        except (TypeError, ValueError) as error:
            return not_serializable(message, error)
        return part if len(part) <= self._most else too_large(message, len(part), self._most)

    async def _call(
        self, stream: str, places: list[int], parts: list[bytes], answers: list[Answer]
    ) -> bool:
        """Record the results of those at *places*; False: nothing may be sent after them."""
        batch = b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)
        try:
            said = await self._run(stream, batch)
        except Exception as error:  # noqa: BLE001 - sorted out there
            failed = self._judge(error)
            for place in places:
                answers[place] = failed
            return False
        came_to, *refused = said
        for number, text in zip(refused[::2], refused[1::2], strict=True):
            answers[places[number - 1]] = self._refused(text.decode(errors="replace"))
        if came_to < len(places):
            for place in places[came_to:]:
                answers[place] = answers[places[came_to - 1]]
        last = answers[places[-1]]
        return last is None or isinstance(last, Undeliverable)

    async def _run(self, stream: str, batch: bytes) -> list[Any]:
        if self._client is None:
            self._client = self._connect()
        run = partial(self._client.execute_command, NEVER_DECODE=True)  # whatever the URL requests
        # One key, so that a cluster node can tell if it belongs to another.
        arguments = (1, stream, batch, self._seconds, self._trim)
        try:
            found: list[Any] = await run("EVALSHA", _SHA, *arguments)
        except self._redis_errors().NoScriptError:  # the server was restarted, or is a new one
            found = await run("EVAL", SCRIPT, *arguments)
        return found

    def _connect(self) -> Any:
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - of an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - of an extra

        return self._redis.Redis.from_url(
            self._url,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            # The consumer waits and sends again; it reports that, and stops when asked to.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    def _redis_errors(self) -> Any:
        import redis.exceptions  # noqa: PLC0415 - of an extra

        return redis.exceptions

    def _judge(self, error: Exception) -> Answer:
        errors = self._redis_errors()
        what = f"Redis at {self._where}"
        if isinstance(error, (OSError, errors.ConnectionError, errors.TimeoutError)):
            return unavailable(what, error)
        # redis-py strips the code of some errors from their text.
        code = getattr(error, "status_code", None) or _code_of(str(error))
        return unavailable(what, error) if code in _AWAY else error

    def _refused(self, text: str) -> Answer:
        code = _code_of(text)
        if code == "WRONGTYPE":
            return Undeliverable(f"the key is not a stream: {text}", kind="unknown-destination")
        if code in _AWAY:
            return RelayUnavailable(f"Redis at {self._where}: {text}")
        return RelayError(f"Redis at {self._where}: {text}")


def _code_of(text: str) -> str | None:
    found = _CODE.match(text)
    return found[1] if found else None


def _seen(stream: str, event_id: str) -> str:
    """The key by which the script recognises a message: in a cluster, on the stream's node."""
    tagged = stream if _TAG.search(stream) else f"{{{stream}}}"
    return f"{tagged}:seen:{event_id}"
