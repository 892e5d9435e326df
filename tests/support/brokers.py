"""Brokers for tests: does the one of this machine answer, and private ones to stop and start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from . import PATIENCE, eventually


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
    patience = PATIENCE
    """Seconds for a start."""

    def __init__(self, folder: Path, *options: str) -> None:
        if shutil.which(self.program) is None:
            pytest.skip(f"no {self.program} on the PATH")
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """Another one than the test's own."""
        return None

    def is_up(self) -> bool:
        return answers("127.0.0.1", self.port)

    def start(self) -> None:
        file = self.folder / "log"
        with file.open("ab") as log:
            self._process = process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(lambda: process.poll() is not None or self.is_up(), within=self.patience)
        assert process.poll() is None, f"{self.program} ended: {file.read_text()[-2000:]}"

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # there is no exit without an entry
            self.stop(signal.SIGKILL)
            raise
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


class RabbitServer(PrivateServer):
    """A node of its own, beside the one of this machine: only the epmd may be the same, which
    tells where a node is, and which the first of them starts and none of them stops."""

    # Debian's folder first: the one on the PATH there is a script around it that, for root, becomes
    # the user rabbitmq, who may not write into the test's folder, and waits instead of the broker.
    program = (
        shutil.which(
            "rabbitmq-server",
            path=os.pathsep.join(["/usr/lib/rabbitmq/bin", *os.get_exec_path()]),
        )
        or "rabbitmq-server"
    )
    patience = 60.0
    """It takes four to ten when the machine has nothing else to do, most of it a core's work."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, *options)
        self._port_of_erlang = free_port()
        self._plugins = folder / "plugins"
        self._plugins.write_text("[].\n")

    def command(self) -> list[str]:
        return [self.program, "-noinput", *self.options]

    def environment(self) -> dict[str, str]:
        nothing = str(self.folder / "nothing")  # instead of what is in /etc/rabbitmq
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return kept | {
            "HOME": str(self.folder),  # of the cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{nothing}.config",
            # The script gives its process to Erlang, instead of waiting for it: so a signal comes
            # to the broker itself.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_CONFIG_FILE": f"{nothing}.conf",
            "RABBITMQ_CONFIG_FILES": nothing,
            "RABBITMQ_CONF_ENV_FILE": nothing,
            "RABBITMQ_DIST_PORT": str(self._port_of_erlang),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._plugins),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_NODENAME": f"test-{self.port}@127.0.0.1",
            "RABBITMQ_USE_LONGNAME": "true",  # a number is none of the short ones
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }

    def is_up(self) -> bool:
        """It has answered to the protocol's greeting, with a frame of a method."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as one:
                one.sendall(b"AMQP\0\0\x09\x01")
                return one.recv(1) == b"\1"
        except OSError:
            return False
