"""Which sessions have hooks, and of which outbox."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from ..errors import ConfigError, NotInstalled

if TYPE_CHECKING:
    from collections.abc import Callable

AnySession: TypeAlias = "Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]"
"""Every form in which a program may hold a session."""

_adders: weakref.WeakKeyDictionary[type[Session], Callable[..., None]] = weakref.WeakKeyDictionary()
"""Session class to the function that adds an event to one of its sessions."""


def register_adder(cls: type[Session], adder: Callable[..., None]) -> None:
    _adders.setdefault(cls, adder)


def adder_of(session: Session) -> Callable[..., None]:
    """How to add an event to *session*, or :class:`NotInstalled`."""
    own = getattr(session, "outbox", None)
    if own is not None:
        adder: Callable[..., None] = own.add_pending
        return adder
    for cls in type(session).__mro__:
        found = _adders.get(cls)
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
        return target.class_  # made by sessionmaker for itself alone
    if isinstance(target, async_sessionmaker):
        return _own_sync_class(target)
    if isinstance(target, type) and issubclass(target, Session):
        return target
    if isinstance(target, type) and issubclass(target, AsyncSession):
        if "sync_session_class" not in target.__dict__:
            target.sync_session_class = _subclass(target.sync_session_class)
        return target.sync_session_class
    raise ConfigError(
        "install() takes a sessionmaker, an async_sessionmaker, a scoped session or a session "
        f"class, not {target!r}. For one session, make it from a factory that is installed"
    )


def _own_sync_class(maker: async_sessionmaker[Any]) -> type[Session]:
    # Hooking AsyncSession.sync_session_class would hook sqlalchemy.orm.Session itself, and with
    # it every session of the process: the maker gets a class of its own.
    current: type[Session] = maker.kw.get("sync_session_class") or maker.class_.sync_session_class
    if not isinstance(current, type):
        raise ConfigError("sync_session_class must be a class for install() to hook it")
    if "__outbox_own__" not in current.__dict__:
        current = _subclass(current)
        maker.configure(sync_session_class=current)
    return current


def _subclass(cls: type[Session]) -> type[Session]:
    return type(cls.__name__, (cls,), {"__outbox_own__": True})
