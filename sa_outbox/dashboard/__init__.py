"""The dashboard: an ASGI application to see and repair an outbox, mounted or on its own.

====================================================================  ======================
a request is looked at before anything else: host, who, from where    ``guard.py``
who it is: a token, a signed cookie, or the program's own function    ``access.py``
what it asks for is read from its query or its form, and checked      ``asked.py``
answered on the database by ``sa_outbox.operations``, in one go       ``database.py``
and shown: pages made of elements that escape what they hold          ``views/``, ``html.py``
payloads without the fields that nobody may see                       ``masking.py``
the overview stays up to date by server-sent events                   ``live.py``, ``history.py``
====================================================================  ======================

``routes.py`` has every address. A GET changes nothing; what changes something is a POST with the
token of its session, from a page of this application, by somebody who may. Layout and script are
files of their own, so that no page needs to allow more than ``'self'``.
"""

from sa_outbox.errors import ConfigError

try:
    import starlette as _starlette
except ModuleNotFoundError as _error:  # pragma: no cover - see tests: another interpreter's words
    raise ConfigError(
        'the dashboard needs starlette and uvicorn: pip install "sa_outbox[dashboard]"'
    ) from _error

from .access import Visitor
from .application import Dashboard
from .settings import DashboardOptions

__all__ = ["Dashboard", "DashboardOptions", "Visitor"]

del _starlette
