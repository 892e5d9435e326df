"""Dialling: resolve a name once, check every address it has, and connect to one of these.

The check is here, not before the request is built: between the two a name may get another address.
Nothing resolves it again; TLS and the ``Host`` header keep the name.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread
import httpcore2

from .addresses import Address, Network, is_allowed, is_permitted, parse_address

if TYPE_CHECKING:
    import ssl

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses."""

MAX_ADDRESSES = 4
"""How many of a name's addresses are tried."""
PER_ADDRESS_SECONDS = 4.0
"""Seconds before the next address is tried; the last one gets all the remaining time."""
MAX_RESOLVING = 4
MAX_RECEIVED = 256 * 1024
"""Maximum bytes of one response, including everything around its body."""


class Denied(Exception):
    """An address that webhooks must not be sent to."""


class Guarded(httpcore2.AsyncNetworkBackend):
    """Opens connections. It can't be bypassed: it is the only backend that the pool has.

    *only_allowed*: only to the networks of *allow*.
    """

    def __init__(
        self, allow: tuple[Network, ...], resolve: Resolve | None, *, only_allowed: bool = False
    ) -> None:
        self._allow = allow
        self._only_allowed = only_allowed
        self._resolve = resolve or Resolver()
        self._dial: Callable[..., Awaitable[httpcore2.AsyncNetworkStream]]
        backend: Any = httpcore2.AnyIOBackend()  # defined twice: once for those without anyio
        self._dial = backend.connect_tcp

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *first, last = (await self._addresses(host, port))[:MAX_ADDRESSES]
        rest: dict[str, Any] = {"local_address": local_address, "socket_options": socket_options}
        for address in first:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return Stream(
                    await self._dial(str(address), port, timeout=PER_ADDRESS_SECONDS, **rest)
                )
        return Stream(await self._dial(str(last), port, timeout=timeout, **rest))

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002 - of the protocol, as the others
        timeout: float | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        raise Denied("a webhook is not sent to a socket of this machine")

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        """All addresses of the host. One denied address denies all: whoever controls the name
        chooses which one comes first."""
        try:
            found = [parse_address(host)]
        except ValueError:
            found = _parsed(host, await self._resolved(host, port))
        for address in found:
            if self._only_allowed and not is_allowed(address, self._allow):
                raise Denied(
                    f"{host} has the address {address}, which webhooks are sent to by https alone"
                )
            if not is_permitted(address, self._allow):
                raise Denied(
                    f"{host} has the address {address}, which webhooks are not sent to; allow= "
                    "permits networks of your own"
                )
        return found

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host} can't be resolved: {error}") from error
        if not found:
            raise httpcore2.ConnectError(f"{host} has no address")
        return found


class Stream(httpcore2.AsyncNetworkStream):
    """A connection that reads a bounded amount of a response, and is closed if its handshake is not
    completed.

    A response may begin with any number of interim responses, each of which costs us more than the
    sender. And httpcore2 closes a connection after an error in the handshake, but our deadline
    cancels: every attempt would leave a socket behind.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._received = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(max_bytes, timeout)
        self._received += len(data)
        if self._received > MAX_RECEIVED:
            raise httpcore2.ReadError(f"an answer of more than {MAX_RECEIVED:,} bytes")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._received = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()
            raise


def _parsed(host: str, found: Sequence[str]) -> list[Address]:
    try:
        return [parse_address(each) for each in found]
    except ValueError as error:
        raise Denied(f"{host} has an invalid address: {error}") from error


class Resolver:
    """The system's resolver, in threads of this relay's own: asyncio has few, and names that are
    never answered would take them from every other relay."""

    def __init__(self) -> None:
        self._threads: anyio.CapacityLimiter | None = None

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self._threads = self._threads or anyio.CapacityLimiter(MAX_RESOLVING)
        found = await anyio.to_thread.run_sync(
            _look_up, host, port, abandon_on_cancel=True, limiter=self._threads
        )
        return list(dict.fromkeys(found))


def _look_up(host: str, port: int) -> list[str]:
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(each[4][0]) for each in answers]
