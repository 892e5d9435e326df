"""Just enough of PostgreSQL's protocol to ask one question, for a command that answers at once.

A driver is a hundred milliseconds of imports; this needs a socket. It knows the usual case: no
TLS, no password or one by SCRAM-SHA-256, one answer. Everything else, an error too, is
``Declined``: then the driver does it, and says what is wrong as it always does. Nothing is sent
that a driver would not send, and a password never as it is: SCRAM proves it to the server, and the
server has to prove that it knows it.
"""

from __future__ import annotations

import socket
import struct
from struct import pack, unpack_from
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

PATIENCE = 5.0
"""Seconds for each answer of the server."""
LARGEST = 2**28
_VERSION, _TLS = 196608, 80877103
_OK, _SASL, _SASL_GOES_ON, _SASL_ENDS = 0, 10, 11, 12
_SCRAM = b"SCRAM-SHA-256"


class Declined(Exception):
    """A driver has to do it."""


class Address(NamedTuple):
    host: str
    port: int
    user: str
    password: str | None
    database: str

    def __repr__(self) -> str:
        return f"<Address {self.host}:{self.port}>"  # and no password


def ask(address: Address, query: str) -> str:
    """Run *query*, statements that answer with one value in all, and return that."""
    try:
        place = address.host, address.port
        with (
            socket.create_connection(place, PATIENCE) as connection,
            connection.makefile("rb") as stream,
        ):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _Conversation(connection, stream).ask(address, query)
    except (OSError, OverflowError, ValueError, LookupError, struct.error) as error:
        raise Declined(str(error)) from error


class _Conversation:
    def __init__(self, connection: socket.socket, stream: BufferedReader) -> None:
        self._connection = connection
        self._stream = stream

    def ask(self, address: Address, query: str) -> str:
        self._connection.sendall(pack("!ii", 8, _TLS))
        if self._take(1) != b"N":
            raise Declined("it speaks TLS")
        options = {"user": address.user, "database": address.database}
        options |= {"client_encoding": "UTF8", "application_name": "sa-outbox"}
        words = [each for option in options.items() for each in option]
        said = b"".join(_text(each) for each in words) + b"\0"
        self._connection.sendall(pack("!ii", 8 + len(said), _VERSION) + said)
        self._authenticate(address.password)
        self._send(b"Q", _text(query))
        (value,) = self._values()
        self._send(b"X", b"")
        return value.decode()

    def _authenticate(self, password: str | None) -> None:
        scram = None
        for kind, said in self._until_ready():
            if kind != b"R":
                continue
            (request,) = unpack_from("!i", said)
            if request == _SASL and password is not None and _SCRAM in said[4:].split(b"\0"):
                from .scram import Scram  # noqa: PLC0415 - who is trusted does not wait for it

                scram = Scram(password)
                first = scram.first()
                self._send(b"p", _SCRAM + b"\0" + pack("!i", len(first)) + first)
            elif request == _SASL_GOES_ON and scram is not None:
                self._send(b"p", scram.answer(said[4:]))
            elif request == _SASL_ENDS and scram is not None:
                scram.check(said[4:])
            elif request != _OK or (scram is not None and not scram.is_proved):
                raise Declined("another way to say who one is")

    def _values(self) -> Iterator[bytes]:
        for kind, said in self._until_ready():
            if kind == b"D":
                count, length = unpack_from("!hi", said)
                if count != 1 or length < 0:
                    raise Declined("another answer")
                yield said[6:]

    def _until_ready(self) -> Iterator[tuple[bytes, bytes]]:
        while True:
            kind, length = self._take(1), unpack_from("!i", self._take(4))[0]
            if not 4 <= length <= LARGEST:
                raise Declined("not PostgreSQL")
            said = self._take(length - 4)
            if kind == b"Z":
                return
            if kind == b"E":
                raise Declined("an error")
            yield kind, said

    def _take(self, length: int) -> bytes:
        found = self._stream.read(length)
        if len(found) != length:
            raise Declined("it has hung up")
        return found

    def _send(self, kind: bytes, said: bytes) -> None:
        self._connection.sendall(kind + pack("!i", 4 + len(said)) + said)


def _text(text: str) -> bytes:
    if "\0" in text:
        raise Declined("no text for PostgreSQL")
    return text.encode() + b"\0"
