"""How a handler wants to be called, read from its signature."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from ..errors import ConfigError
from ..event.event import Event
from ..event.wanted import Wanted, wanted
from ..producer.session import AsyncOutboxSession, OutboxSession

Handler: TypeAlias = Callable[..., Any]
"""``(event)``, ``(event, session)``, ``(events)`` or ``(events, session)``; async or not."""

_BATCHES = (Sequence, Collection, Iterable, list, tuple)
_PLAIN: tuple[object, ...] = (inspect.Parameter.empty, Any, object, dict, typing.TypeVar)


class Forwarding(Protocol):
    """What a consumer does for a relay besides calling its handler."""

    payload: Wanted | None
    """What its own functions of an event ask for."""
    max_pause: float | None
    """Longest pause, in seconds, while its receiver is away; None: the usual one."""
    tenant: str | None
    """Nothing of another tenant is sent; None: of any."""

    def begin_epoch(self, epoch: int) -> None:
        """The database's epoch: called once it is known, and whenever it may have changed."""
        ...

    async def close(self) -> None:
        """The consumer has ended: nothing more is sent."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """What to pass to a handler, and how."""

    is_async: bool
    session: Literal["none", "async", "sync"]
    batch: bool
    session_class: type | None = None
    """From ``session: SomeSession``, if that is more than SQLAlchemy's or ours."""
    payload: Wanted | None = None
    """From ``Event[OrderPlaced]``; None if the annotation names no class: it gets JSON."""


def inspect_handler(name: str, handler: Handler) -> Call:
    """Read how *handler* wants to be called; raise if it can't be called."""
    if not callable(handler):
        raise ConfigError(f"the handler of listener {name!r} is not callable: {handler!r}")
    parameters = _parameters(name, handler)
    if not 1 <= len(parameters) <= 2:
        raise ConfigError(
            f"the handler of listener {name!r} must take (event) or (event, session), it takes "
            f"{len(parameters)} arguments"
        )
    if _is_generator(handler):
        raise ConfigError(
            f"the handler of listener {name!r} is a generator (it has a yield): called, its body "
            "would never run"
        )
    is_async = _is_async(handler)
    hints = _hints(handler)
    first, *rest = parameters
    batch, payload = _event_argument(name, hints.get(first.name, first.annotation))
    session: Literal["none", "async", "sync"] = "none"
    session_class: type | None = None
    if rest:
        annotation = hints.get(rest[0].name, rest[0].annotation)
        session = _session_argument(name, rest[0], annotation, is_async=is_async)
        session_class = _own_class(name, annotation, is_async=is_async)
    return Call(
        is_async=is_async,
        session=session,
        batch=batch,
        session_class=session_class,
        payload=payload,
    )


def merged(name: str, calls: Sequence[Call]) -> Call:
    """What holds for all handlers of the queue *name*."""
    first = calls[0]
    if len(calls) == 1:
        return first
    if any(call.batch for call in calls):
        raise ConfigError(
            f"queue {name!r} has several handlers, and one of them takes batches: each event goes "
            "to the handler of its type. Take one event at a time, or make it a queue of its own"
        )
    with_session = next((call for call in calls if call.session != "none"), first)
    return Call(
        is_async=all(call.is_async for call in calls),
        session=with_session.session,
        batch=False,
        payload=None,
    )


def _parameters(name: str, handler: Handler) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the handler of listener {name!r} has no signature to read") from error
    found = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        and (each.default is each.empty or each.name == "session")
    ]
    missing = [
        each.name
        for each in signature.parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    ]
    if missing:
        raise ConfigError(
            f"the handler of listener {name!r} needs {', '.join(missing)} by keyword, which "
            "nobody passes"
        )
    return found


def _unwrapped(handler: Handler) -> Any:
    inner: Any = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _is_generator(handler: Handler) -> bool:
    inner = _unwrapped(handler)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def _is_async(handler: Handler) -> bool:
    inner: Any = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )


def _hints(handler: Handler) -> dict[str, Any]:
    target = _unwrapped(handler)
    try:
        return typing.get_type_hints(target)
    except Exception:  # noqa: BLE001 - names imported for the type checker only
        return _hints_one_by_one(target)


def _hints_one_by_one(target: Any) -> dict[str, Any]:
    """The hints that can be resolved, when some can't."""
    found: dict[str, Any] = {}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(Exception):
            found |= typing.get_type_hints(alone, globalns=getattr(target, "__globals__", {}))
    return found


def _event_argument(name: str, annotation: Any) -> tuple[bool, Wanted | None]:
    if isinstance(annotation, str):  # not resolvable at run time
        outer = annotation.partition("[")[0].rpartition(".")[2]
        is_batch = outer in {"List", *(each.__name__ for each in _BATCHES)}
        return is_batch, wanted(annotation.partition("Event[")[2])
    origin = typing.get_origin(annotation) or annotation
    if origin is Event:
        return False, _payload(annotation)
    if origin in _BATCHES:
        inner = (*typing.get_args(annotation), Event)[0]
        if (typing.get_origin(inner) or inner) is Event:
            return True, _payload(inner)
    if annotation in _PLAIN:
        return False, None
    raise ConfigError(
        f"the first argument of listener {name!r} is annotated as {annotation!r}; it must be "
        "Event, Event[SomePayload] or Sequence[Event]"
    )


def _payload(annotation: Any) -> Wanted | None:
    arguments = typing.get_args(annotation)
    return wanted(arguments[0]) if arguments else None


def payload_for(function: Handler) -> Wanted | None:
    """The payload that a function of one event asks for by its annotation. It may be any callable:
    what can't be read is no annotation."""
    with contextlib.suppress(Exception):
        (first, *_) = inspect.signature(function).parameters.values()
        return _event_argument("", _hints(function).get(first.name, first.annotation))[1]
    return None


def _session_argument(
    name: str, parameter: inspect.Parameter, annotation: Any, *, is_async: bool
) -> Literal["async", "sync"]:
    wanted: Literal["async", "sync"] = "async" if is_async else "sync"
    if isinstance(annotation, type):
        expected = AsyncSession if is_async else Session
        if issubclass(annotation, expected):
            return wanted
        if issubclass(annotation, (AsyncSession, Session)):
            raise ConfigError(
                f"listener {name!r} is {'async' if is_async else 'sync'} and asks for "
                f"{annotation.__name__}: an async handler gets an AsyncSession, a sync one a "
                "Session"
            )
    elif isinstance(annotation, str) and annotation.rpartition(".")[2].endswith("Session"):
        return wanted
    if parameter.name == "session" or annotation is parameter.empty:
        return wanted
    raise ConfigError(
        f"the second argument of listener {name!r} must be a session, not {annotation!r}"
    )


def _own_class(name: str, annotation: Any, *, is_async: bool) -> type | None:
    """The class that the handler's session must also be one of; None: any session will do."""
    ours = AsyncOutboxSession if is_async else OutboxSession
    if not isinstance(annotation, type) or issubclass(ours, annotation):
        return None
    if not issubclass(annotation, (AsyncSession, Session)):
        return None
    try:
        type("_Both", (type("_Ours", (ours,), {}), annotation), {})  # as the consumer makes it
    except TypeError as error:
        raise ConfigError(
            f"listener {name!r} asks for {annotation.__name__}, of which no handler's session can "
            f"be made: {error}"
        ) from error
    return annotation
