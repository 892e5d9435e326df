"""When something goes wrong: a page that explains it to a person, and nothing else.

No traceback, no driver text, no URL: those belong in the log.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse

from sa_outbox.errors import OutboxError

from .mask import EditRefused
from .views.fault import fault_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .settings import DashboardSettings

_LOG: Final = logging.getLogger(__name__)
_BY_STATE: Final = {
    "57014": "The database took too long. A narrower search helps: a shorter time, an id.",
    "42501": "The database refused: this role lacks a right that it needs for this.",
    "42P01": "The outbox's tables do not exist. sa-outbox migrate creates them.",
    "55P03": "Someone else is changing the same data. Try again.",
    "40P01": "Someone else changed the same data at the same time. Try again.",
    "40001": "Someone else changed the same data at the same time. Try again.",
    "25006": "The database is read-only, a replica perhaps: nothing was changed.",
}
_AWAY: Final = (
    "The database can't be reached, or ended the connection. The log of this program says why."
)


class Faults:
    """ASGI: turns what *app* raises into a page."""

    def __init__(self, app: ASGIApp, settings: DashboardSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except ClientDisconnect:
            return  # the client is gone
        except Exception as error:  # noqa: BLE001 - whatever it is, the person gets a page
            status, what, headers = describe(error)
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _LOG.error("%s %s", scope["method"], type(error).__name__, exc_info=error)
            if begun:
                return  # half a page or a stream was sent: the browser reloads it
            page = fault_page(scope, self._settings, status, what)
            response = HTMLResponse(page, status, headers=headers)
            await response(scope, receive, send)


def describe(error: Exception) -> tuple[int, str, Mapping[str, str] | None]:
    """The status, the message for the visitor, and headers."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail, error.headers
    if isinstance(error, EditRefused):
        return 400, str(error), None
    if isinstance(error, OutboxError):
        return _of_ours(error), str(error), None
    if isinstance(error, PoolTimeout):
        return 503, "Every connection of the dashboard is in use. Try again.", None
    if isinstance(error, (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        return 503, _of_the_database(error), None
    return 500, "Something went wrong here. The log of this program says what.", None


def _of_ours(error: OutboxError) -> int:
    if isinstance(error, LookupError):
        return 404
    if isinstance(error, ValueError):
        return 400
    return 503 if error.code == "schema" else 409


def _of_the_database(error: Exception) -> str:
    original = error.orig if isinstance(error, DBAPIError) else error
    state = getattr(original, "sqlstate", None)
    if state is None or str(state).startswith(("08", "57P", "53", "28", "3D")):
        return _AWAY
    return _BY_STATE.get(state, f"The database refused it ({state}); nothing was changed.")
