"""The context in which an event is added: tenant, actor and request.

Evaluated when an event is added. In a handler it starts from the handled event's own context, which
is read only when the handler adds an event: most handlers never do, and pay nothing.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ..errors import CrossTenant, InvalidEvent, WrongArgument
from .causation import CARRIED, carried, handled, tenants
from .validation import ACTOR_TYPES, checked_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from contextvars import Token

    from .causation import Cause
    from .validation import ActorType

_STRUCTLOG: Final = "structlog.contextvars"
ACTOR: Final = ("actor_type", "actor_id", "request_id")
"""The headers that say who did something."""


class _Context:
    """The values in effect inside one ``with`` block."""

    __slots__ = ("cross_tenant", "under", "values")

    def __init__(self, values: dict[str, str], under: Cause | None, *, cross_tenant: bool) -> None:
        self.values = values
        # It does not apply inside another handler: a consumer may have been started within this
        # block.
        self.under = under
        self.cross_tenant = cross_tenant


_context: ContextVar[_Context | None] = ContextVar("sa_outbox_context", default=None)


def event_context(
    *,
    tenant: str | None = None,
    project_id: str | None = None,
    actor_type: ActorType | None = None,
    actor_id: str | None = None,
    request_id: str | None = None,
    correlation_id: str | None = None,
    cross_tenant: bool = False,
) -> AbstractContextManager[None]:
    """Give events added inside the ``with`` these values, unless the call overrides them.

    ::

        with event_context(tenant="acme", actor_type="user", actor_id="7"):
            session.add_event("order.placed", {"order_id": 1})

    The tenant becomes the event's tenant; every other value becomes a header of the same name.
    Contexts nest, and the inner one wins; None removes nothing. A project belongs to its tenant: a
    context with a different tenant does not inherit it.

    *cross_tenant* lets a handler add events for a tenant other than its event's, which is refused
    otherwise.
    """
    given = {
        "tenant": tenant,
        "project_id": project_id,
        "actor_type": actor_type,
        "actor_id": actor_id,
        "request_id": request_id,
        "correlation_id": correlation_id,
    }
    checked = {name: checked_text(name, value) for name, value in given.items()}
    if actor_type is not None and checked["actor_type"] not in ACTOR_TYPES:
        raise InvalidEvent(
            f"actor_type must be one of {', '.join(ACTOR_TYPES)}", field="actor_type"
        )
    if type(cross_tenant) is not bool:
        raise WrongArgument("cross_tenant must be True or False", field="cross_tenant")
    values = {name: value for name, value in checked.items() if value is not None}
    return _Entering(values, cross_tenant=cross_tenant)


class _Entering:
    """A context manager but not a decorator: around an async function it would end too soon."""

    def __init__(self, values: dict[str, str], *, cross_tenant: bool) -> None:
        self._values = values
        self._cross_tenant = cross_tenant
        self._tokens: list[Token[_Context | None]] = []

    def __enter__(self) -> None:
        cause = handled.get()
        outer = _context.get()
        if outer is not None and outer.under is not cause:
            outer = None
        cross_tenant = self._cross_tenant or (outer is not None and outer.cross_tenant)
        values = _joined(_known(outer, cause), self._values)
        self._tokens.append(_context.set(_Context(values, cause, cross_tenant=cross_tenant)))

    def __exit__(self, *_: object) -> None:
        _context.reset(self._tokens.pop())


def current_actor() -> dict[str, str]:
    """Who acts now, as far as the context knows: ``actor_type``, ``actor_id``, ``request_id``."""
    cause, context = handled.get(), _context.get()
    if context is not None and context.under is not cause:
        context = None
    found: dict[str, str | int] = {**_known(context, cause)}
    if cause is None:
        _fill_in_from_structlog(found)
    return {name: str(found[name]) for name in ACTOR if name in found}


def fill_in(
    event_type: str, tenant: str | None, headers: dict[str, str | int], cause: Cause | None
) -> str | None:
    """Add to a new event's *headers* what the context provides and the caller did not; return the
    event's tenant. *cause* is what is being handled."""
    context = _context.get()
    if context is None and cause is None and _STRUCTLOG not in sys.modules:
        return tenant
    if context is not None and context.under is not cause:
        context = None
    values = _known(context, cause)
    whose = values.get("tenant")
    if tenant is None:
        tenant = whose
    for name in CARRIED:
        if name in values and (name != "project_id" or whose is None or tenant == whose):
            headers.setdefault(name, values[name])
    if cause is None:
        _fill_in_from_structlog(headers)
    elif tenant is not None and not (context is not None and context.cross_tenant):
        _check_tenant(event_type, tenant, cause)
    return tenant


def _check_tenant(event_type: str, tenant: str, cause: Cause) -> None:
    allowed = tenants(cause)
    if tenant not in allowed and None not in allowed:
        raise CrossTenant(event_type)


def _known(context: _Context | None, cause: Cause | None) -> dict[str, str]:
    if context is not None:
        return context.values
    return {} if cause is None else carried(cause)


def _joined(outer: dict[str, str], inner: dict[str, str]) -> dict[str, str]:
    joined = {**outer, **inner}
    moved = outer.get("tenant") not in (None, joined.get("tenant"))
    if moved and "project_id" not in inner:
        joined.pop("project_id", None)
    return joined


def _fill_in_from_structlog(headers: dict[str, str | int]) -> None:
    """Take values that the program has bound for its log, if it uses structlog.

    Not in a handler: values that were bound and not unbound would leak into the next event, which
    may belong to another tenant. For the same reason, never the tenant.
    """
    structlog: Any = sys.modules.get(_STRUCTLOG)
    bound: dict[str, Any] = {} if structlog is None else structlog.get_contextvars()
    for name in CARRIED:
        if name in bound and name not in headers:
            value = _as_text(name, bound[name])
            if value is not None:
                headers[name] = value


def _as_text(name: str, value: object) -> str | None:
    """*value* as a header; None if it does not fit, since it was bound for a log and not for us."""
    if not isinstance(value, (str, int, UUID)) or isinstance(value, bool):
        return None
    try:
        text = checked_text(name, str(value))
    except (InvalidEvent, ValueError):  # ValueError: an int with too many digits
        return None
    return text if name != "actor_type" or text in ACTOR_TYPES else None
