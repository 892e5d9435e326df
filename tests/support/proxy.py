"""A door in front of PostgreSQL that a test can shut, open again, or leave unanswered."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import URL


class Proxy:
    """Forwards a local port to *url*'s server while it is open. Begins shut: nothing listens."""

    def __init__(self, url: URL) -> None:
        self._server = (url.host or "127.0.0.1", url.port or 5432)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._door: socket.socket | None = None
        self._welcomer: threading.Thread | None = None
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._swallowing = False
        self._commits_to_cut = 0
        self._words_to_cut = b"COMMIT"
        self._cut_before = False

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def open(self, *, silent: bool = False) -> None:
        """Let connections in; *silent*: accept them and never say a word."""
        self._door = socket.create_server(("127.0.0.1", self.port))
        self._welcomer = self._spawn(self._welcome, self._door, silent)

    @property
    def still_to_cut(self) -> int:
        return self._commits_to_cut

    def lead_to(self, url: URL) -> None:
        """Forward connections that come from now on to another server."""
        self._server = (url.host or "127.0.0.1", url.port or 5432)

    def best_effort(self) -> None:
        """From now on what comes in is lost, in both directions; connections stay open."""
        self._swallowing = True

    def pass_on(self) -> None:
        """Let what comes from now on through; what was swallowed stays lost."""
        self._swallowing = False

    def cut_at_commit(self, times: int, *, before: bool = False) -> None:
        """End the connection of the next COMMITs: after the server has got it, so that only its
        answer is lost, or *before*."""
        self.cut_at(b"COMMIT", times, before=before)

    def cut_at(self, words: bytes, times: int = 1, *, before: bool = True) -> None:
        """End the connection of the next statements that hold these *words*."""
        self._words_to_cut, self._commits_to_cut = words, times
        self._cut_before = before

    def shut(self) -> None:
        """End every connection and refuse new ones."""
        door, self._door = self._door, None
        if door is not None:
            _end(door)
        if self._welcomer is not None:  # it may be letting somebody in
            self._welcomer.join()
        for each in self._sockets:
            _end(each)
        self._sockets.clear()
        while self._threads:
            self._threads.pop().join()

    def _spawn(self, work: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]  # any callable
        thread.start()
        self._threads.append(thread)
        return thread

    def _welcome(self, door: socket.socket, silent: bool) -> None:
        with suppress(OSError):
            while True:
                client, _ = door.accept()
                self._sockets.append(client)
                if not silent:
                    server = socket.create_connection(self._server)
                    self._sockets.append(server)
                    self._spawn(self._copy, client, server)
                    self._spawn(self._copy, server, client)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._commits_to_cut and self._words_to_cut in data:
                    self._commits_to_cut -= 1
                    if not self._cut_before:
                        target.sendall(data)
                    source.shutdown(socket.SHUT_RDWR)
                elif not self._swallowing:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
