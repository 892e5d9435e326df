"""A session for each request of a Flask application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy.orm import Session, sessionmaker

from ..errors import ConfigError
from .request_ids import context_of

try:
    from flask import g, has_request_context, request
except ModuleNotFoundError as _error:
    raise ConfigError('sa_outbox.contrib.flask needs Flask: pip install "flask>=3.1"') from _error

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from flask import Flask, Response

S = TypeVar("S", bound=Session)

FIRST_ERROR_STATUS = 400


class RequestSessions(Generic[S]):
    """The session of the current request, committed before the response is sent.

    ::

        app = Flask(__name__)
        sessions = RequestSessions(outbox.sessionmaker(engine), app)

        @app.post("/orders")
        def place_order() -> dict[str, str]:
            sessions.current().add_event("order.placed", {"product": request.args["product"]})
            return {"answer": "thank you"}

    It begins with the first call of :meth:`current`. It is rolled back if the view raises or the
    response has a status of 400 or more; if the commit fails, the client gets a 500. Its events
    have the ids of the request, from the headers *request_id* and *correlation_id*; a value that
    can't be stored is left out. Make this before other ``after_request`` functions: Flask calls the
    first one last, so what they raise comes before the commit.

    An error handler that answers an exception with a status below 400 commits what was done before
    it: call ``sessions.current().rollback()`` in it.
    """

    def __init__(
        self,
        sessions: sessionmaker[S],
        app: Flask | None = None,
        *,
        request_id: str = "X-Request-ID",
        correlation_id: str = "X-Correlation-ID",
    ) -> None:
        if not isinstance(sessions, sessionmaker):
            raise ConfigError(
                "RequestSessions takes what outbox.sessionmaker(engine) returns, not "
                f"{type(sessions).__name__}: Flask's views are sync"
            )
        self._sessions = sessions
        self._headers = {"request_id": request_id, "correlation_id": correlation_id}
        # Per object: a program may have several databases.
        self._session_name = f"_sa_outbox_session_{id(self)}"
        self._context_name = f"_sa_outbox_context_{id(self)}"
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Take part in the requests of *app*, for one that is made in a function."""
        app.before_request(self._enter_context)
        app.after_request(self._commit)
        app.teardown_request(self._close)

    def current(self) -> S:
        """The session of this request.

        Raises :class:`ConfigError` outside a request, a command for example: nobody would commit
        it. Write ``with Session.begin() as session:`` there.
        """
        if not has_request_context():
            raise ConfigError(
                "there is no request whose end commits this session: write "
                "with Session.begin() as session: instead"
            )
        session: S | None = g.get(self._session_name)
        if session is None:
            session = self._sessions()
            setattr(g, self._session_name, session)
        return session

    def _enter_context(self) -> None:
        sent = {name: request.headers.get(header) for name, header in self._headers.items()}
        context = context_of({name: text for name, text in sent.items() if text is not None})
        context.__enter__()
        setattr(g, self._context_name, context)

    def _commit(self, response: Response) -> Response:
        session: S | None = g.get(self._session_name)
        if session is not None and response.status_code < FIRST_ERROR_STATUS:
            session.commit()
        return response

    def _close(self, _: BaseException | None) -> None:
        session: S | None = g.pop(self._session_name, None)
        context: AbstractContextManager[Any] | None = g.pop(self._context_name, None)
        try:
            if session is not None:
                session.close()  # rolls back what was not committed
        finally:
            if context is not None:
                context.__exit__(None, None, None)
