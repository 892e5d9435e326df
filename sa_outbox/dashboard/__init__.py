"""The dashboard: an ASGI application to inspect and repair an outbox, mounted or standalone.

In the order a request meets them:

==================  ==============================================================================
``application.py``  ``Dashboard``: the application
``settings.py``     its settings, checked at startup
``guard.py``        before any page: which host, who, from where, whether they may
``access.py``       who it is: a token, a signed cookie, or the program's own function
``urls.py``         every route and its function
``query.py``        a request's parameters, parsed and checked
``forms.py``        reading a form, up to a size
``routes/``         the functions behind the routes
``database.py``     runs ``sa_outbox.operations`` on the database, in one go
``views/``          the pages
``html.py``         HTML as values: text is escaped because it is text
``payloads.py``     stored JSON, formatted for people
``mask.py``         fields that nobody may see
``catalogue.py``    event types as their page lists them
``comparison.py``   two texts line by line
``live.py``         server-sent events: the overview stays up to date
``history.py``      samples of the overview, for its chart
``assets.py``       the files of the pages
``faults.py``       error pages
``server.py``       the dashboard as a standalone program
==================  ==============================================================================

A GET changes nothing. Every change is a POST with the session's form token, from a page of this
application, by a visitor who is allowed to. Layout and script are separate files, so that no page
needs to allow more than ``'self'``.

Imports ``catalog``, ``consumer`` and the rooms below them. The routes do not know the
application: they get the parts of it that they use.
"""

from sa_outbox.errors import ConfigError

try:
    import itsdangerous as _itsdangerous
    import starlette as _starlette
except ModuleNotFoundError as _error:  # pragma: no cover - see tests: another interpreter's words
    raise ConfigError(
        "the dashboard needs starlette, uvicorn and itsdangerous: "
        'pip install "sa_outbox[dashboard]"'
    ) from _error

from .access import Visitor
from .application import Dashboard
from .settings import DashboardOptions

__all__ = ["Dashboard", "DashboardOptions", "Visitor"]

del _itsdangerous, _starlette
