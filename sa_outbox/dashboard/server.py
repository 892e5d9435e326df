"""The dashboard as a standalone program: a socket, a server, an orderly shutdown."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import uvicorn

from sa_outbox.errors import ConfigError

from .guard import LOOPBACK_NAMES

if TYPE_CHECKING:
    from types import FrameType

    from .application import Dashboard

_SHUTDOWN_SECONDS: Final = 5
"""Seconds for responses in flight when the server is stopped."""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


def open_socket(host: str, port: int) -> socket.socket:
    """Bind first, so that a taken port is reported before anything else happens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise ConfigError(f"{host}:{port} can't be bound: {error.strerror or error}") from error


class DashboardServer(uvicorn.Server):
    """Ends the streams when it is stopped: an open connection would keep it running."""

    def __init__(self, dashboard: Dashboard, root_path: str = "") -> None:
        super().__init__(
            uvicorn.Config(
                dashboard,
                root_path=root_path,
                log_level="warning",
                access_log=False,  # a query holds keys and tenants
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                ws="none",
            )
        )
        self._dashboard = dashboard

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._dashboard.streams.end()
        super().handle_exit(sig, frame)
