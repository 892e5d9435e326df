"""Brokers for tests: does the one of this machine answer, and private ones to stop and start."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from . import eventually


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def skip_without(url: str, what: str) -> None:
    """Skip the test if nobody answers there."""
    parts = urlsplit(url)
    if not answers(parts.hostname or "127.0.0.1", parts.port or 0):
        pytest.skip(f"no {what} answers at {parts.hostname}:{parts.port}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class PrivateServer:
    """A process of the test's own: started again it has what it had."""

    program: str

    def __init__(self, folder: Path, *options: str) -> None:
        if shutil.which(self.program) is None:
            pytest.skip(f"no {self.program} on the PATH")
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdout=log, stderr=log
            )
        eventually(lambda: answers("127.0.0.1", self.port))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)


class NatsServer(PrivateServer):
    program = "nats-server"

    def command(self) -> list[str]:
        address = ["-a", "127.0.0.1", "-p", str(self.port)]
        return [self.program, *address, *(self.options or ("-js", "-sd", str(self.folder)))]


class RedisServer(PrivateServer):
    """Nothing that it confirmed is lost, whatever its end."""

    program = "redis-server"

    def command(self) -> list[str]:
        port = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        return [
            self.program,
            *port,
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
            *self.options,
        ]
