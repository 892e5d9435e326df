"""Commits the sessions of Advanced Alchemy's plugin before a response begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncSession

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

FIRST_ERROR_STATUS = 400


class ProvidesSessions(Protocol):
    """``SQLAlchemyAsyncConfig`` and ``SQLAlchemySyncConfig`` of Advanced Alchemy for Litestar."""

    def provide_session(self, state: Any, scope: Any) -> AsyncSession | Session:
        """The session of the request."""
        ...


class CommitBeforeSend:
    """For ``before_send``: a commit that fails is an error of the request.

    Advanced Alchemy's own ``autocommit`` logs it at the level debug, and sends the response of
    success. What is rolled back and closed otherwise stays its business, in its own hook, which has
    to come after this.
    """

    def __init__(self, alchemy: ProvidesSessions) -> None:
        self._alchemy = alchemy

    async def __call__(self, message: Any, scope: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] < FIRST_ERROR_STATUS:
            session = self._alchemy.provide_session(scope["litestar_app"].state, scope)
            if isinstance(session, AsyncSession):
                await _commit(session)
            else:
                await to_thread.run_sync(_commit_sync, session)


async def _commit(session: AsyncSession) -> None:
    try:
        await session.commit()
    except BaseException:
        await session.close()  # its own hook does not run after an error
        raise


def _commit_sync(session: Session) -> None:
    try:
        session.commit()
    except BaseException:
        session.close()
        raise
