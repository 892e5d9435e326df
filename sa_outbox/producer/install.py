"""Which sessions have hooks, and for which outbox."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from ..errors import ConfigError, NotInstalled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..policy.admission import Admission
    from .pending import Pending

AnySession: TypeAlias = "Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]"
"""Every form in which a program may hold a session."""


class Owner(Protocol):
    """An outbox, as far as entities' events need it."""

    @property
    def admission(self) -> Admission | None: ...
    @property
    def add_pending(self) -> Callable[[Session, Pending], None]: ...


_owners: weakref.WeakKeyDictionary[type[Session], Owner] = weakref.WeakKeyDictionary()
"""Session class to the outbox that was installed on it first."""


def register_owner(cls: type[Session], owner: Owner) -> None:
    _owners.setdefault(cls, owner)


def owner_of(session: Session) -> Owner:
    """The outbox that events of the session's entities belong to. Raises :class:`NotInstalled`."""
    own: Owner = getattr(session, "outbox", None)  # type: ignore[assignment]  # checked next
    if hasattr(own, "add_pending"):  # a session class of the user's may call its own thing outbox
        return own
    for cls in type(session).__mro__:
        found = _owners.get(cls)
        if found is not None:
            return found
    raise not_installed(type(session))


def not_installed(cls: type) -> NotInstalled:
    return NotInstalled(
        f"{cls.__qualname__} has no outbox hooks, the event would never be written. Make sessions "
        "with outbox.sessionmaker(engine) or outbox.async_sessionmaker(engine), or call "
        "outbox.install(factory) once. Nothing was added"
    )


def sync_session(session: AnySession) -> Session:
    """The ``Session`` inside whatever the program holds."""
    inner: object = session
    if isinstance(inner, (scoped_session, async_scoped_session)):
        inner = inner()
    if isinstance(inner, AsyncSession):
        inner = inner.sync_session
    if not isinstance(inner, Session):
        raise ConfigError(f"not a session: {type(session).__qualname__}")
    return inner


def session_class(target: object) -> type[Session]:
    """The class to hook so that exactly the sessions of *target* have hooks."""
    if isinstance(target, (scoped_session, async_scoped_session)):
        target = target.session_factory
    if isinstance(target, sessionmaker):
        return target.class_  # created by sessionmaker for itself alone
    if isinstance(target, async_sessionmaker):
        return _own_sync_class(target)
    if isinstance(target, type) and issubclass(target, Session):
        return target
    if isinstance(target, type) and issubclass(target, AsyncSession):
        target.sync_session_class = _own(target.sync_session_class)
        return target.sync_session_class
    raise ConfigError(
        "install() takes a sessionmaker, an async_sessionmaker, a scoped session or a session "
        f"class, not {target!r}. For one session, make it from a factory that is installed"
    )


def _own_sync_class(maker: async_sessionmaker[Any]) -> type[Session]:
    # Hooking AsyncSession.sync_session_class would hook sqlalchemy.orm.Session itself, and with it
    # every session in the process, so the maker gets its own class.
    current: type[Session] = maker.kw.get("sync_session_class") or maker.class_.sync_session_class
    if not isinstance(current, type):
        raise ConfigError("sync_session_class must be a class for install() to hook it")
    own = _own(current)
    if own is not current:
        maker.configure(sync_session_class=own)
    return own


def _own(cls: type[Session]) -> type[Session]:
    """*cls* if it was created here, otherwise a subclass that nobody else has."""
    if "__outbox_own__" in cls.__dict__:
        return cls
    return type(cls.__name__, (cls,), {"__outbox_own__": True})
