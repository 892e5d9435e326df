"""The parts of the conformance checks: what is sent, what arrived, and comparing them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from sa_outbox.event.event import Event

from .envelope import Plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from .message import Message, Relay


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message as a receiver finds it."""

    event_id: str
    body: bytes
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def make_message(
    relay: Relay,
    destination: str,
    number: int,
    *,
    key: str | None,
    body: bytes | None = None,
    note: str = "-",
) -> Message:
    event = Event("relay.checked", {"n": number}, key=key, headers={"note": note})
    made = Plain().wrap(event, destination, epoch=1, prefix=relay.attribute_prefix)
    return made if body is None else replace(made, body=body)


def check_same(sent: Sequence[Message], found: Sequence[Arrived]) -> None:
    """Each of *sent* has arrived unchanged, and nothing else; duplicates are allowed."""
    wanted = {str(each.event.event_id): each for each in sent}
    came = {each.event_id: each for each in found}
    check(not wanted.keys() - came.keys(), f"{len(wanted.keys() - came.keys())} did not arrive")
    check(not came.keys() - wanted.keys(), "something arrived that nobody sent")
    for each in found:
        message = wanted[each.event_id]
        check(each.body == message.body, f"another body: {each.body[:80]!r}")
        check(each.key == message.key, f"another key: {each.key!r} for {message.key!r}")
        headers = {name.lower(): value for name, value in each.headers.items()}
        for name, value in message.headers.items():
            there = headers.get(name.lower())
            check(there == value, f"header {name} is {there!r} and not {value!r}")


def check(truth: bool, otherwise: str) -> None:  # noqa: FBT001 - as assert has it
    if not truth:
        raise AssertionError(otherwise)


@asynccontextmanager
async def closing(relay: Relay) -> AsyncIterator[Relay]:
    try:
        yield relay
    finally:
        await relay.close()


async def check_nothing_else_runs(before: set[asyncio.Task[object]]) -> None:
    """Tasks that end by themselves get a moment for it."""
    with anyio.move_on_after(1):
        while asyncio.all_tasks() - before:
            await anyio.sleep(0.01)
    left = asyncio.all_tasks() - before
    check(not left, f"still running after close: {left}")


@contextmanager
def no_connections() -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise AssertionError("it connects before it has something to send")

    kept = socket.socket.connect, socket.socket.connect_ex
    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.socket.connect_ex = refuse  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        socket.socket.connect, socket.socket.connect_ex = kept  # type: ignore[method-assign]
