"""The dashboard as a program of its own: a socket, a server, an orderly end."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import uvicorn

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from types import FrameType

    from .application import Dashboard

LOOPBACK_NAMES: Final = ("127.0.0.1", "::1", "localhost")
_PATIENCE: Final = 5
"""Seconds for answers that are on their way when the server is told to stop."""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


def open_socket(host: str, port: int) -> socket.socket:
    """Bound, so that a port that is taken is told before anything else happens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} can't be listened on: {error.strerror or error}"
        ) from error


class DashboardServer(uvicorn.Server):
    """Ends the streams when it is told to stop: a connection that stays open would keep it."""

    def __init__(self, dashboard: Dashboard, root_path: str = "") -> None:
        super().__init__(
            uvicorn.Config(
                dashboard,
                root_path=root_path,
                log_level="warning",
                access_log=False,  # a query holds keys and tenants
                server_header=False,
                timeout_graceful_shutdown=_PATIENCE,
                ws="none",
            )
        )
        self._dashboard = dashboard

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._dashboard.streams.end()
        super().handle_exit(sig, frame)
