"""A proxy in front of a broker that ends connections by chance, or loses an answer first."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Self

from sqlalchemy import URL

from .proxy import Proxy


@dataclass
class Link:
    """A connection, and what awaits it."""

    left: int
    """Bytes from the client after which it ends."""
    loses: bool
    """The broker gets what was sent then, but its answer is lost; else half of it is lost."""
    over: bool = False


class Saboteur(Proxy):
    """Progress, not time, decides when a connection ends: a slow machine sees the same faults."""

    def __init__(self, port: int, *, seed: int, lives: tuple[int, int], host: str = "127.0.0.1"):
        super().__init__(URL.create("tcp", host=host, port=port))
        self._random = Random(seed)
        self._lives = lives
        self.cuts = 0
        self.lost_answers = 0

    def __enter__(self) -> Self:
        return self

    def _welcome(self, door: socket.socket, silent: bool) -> None:
        with suppress(OSError):
            while True:
                client, _ = door.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # the broker is down: so it looks to its clients, too
                    client.close()
                    continue
                self._sockets += [client, server]
                link = Link(self._random.randint(*self._lives), self._random.random() < 0.5)
                self._spawn(self._up, client, server, link)
                self._spawn(self._down, server, client, link)

    def _up(self, client: socket.socket, server: socket.socket, link: Link) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                link.left -= len(data)
                if link.left >= 0:
                    server.sendall(data)
                elif link.loses:
                    link.over = True
                    server.sendall(data)
                else:
                    server.sendall(data[: len(data) // 2])
                    self.cuts += 1
                    break
        end(client, server)

    def _down(self, server: socket.socket, client: socket.socket, link: Link) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if link.over:
                    self.lost_answers += 1
                    break
                client.sendall(data)
        end(client, server)


def end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
