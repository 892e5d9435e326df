"""Declaring what is set up before the first handler and torn down after the last."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ..errors import ConfigError

Around: TypeAlias = (
    Callable[[], AsyncIterator[None]] | Callable[[], AbstractAsyncContextManager[Any]]
)
"""An async function with one ``yield``, or one that returns an async context manager."""
A = TypeVar("A", bound=Around)

_SHAPE = "an async function without arguments that has one yield"


@dataclass(frozen=True)
class Lifespan:
    name: str
    """Of its function, for messages."""
    make: Callable[[], AbstractAsyncContextManager[Any]]


def inspect_lifespan(around: Around) -> Lifespan:
    """What *around* is. Raises :class:`ConfigError` if it is no lifespan."""
    name = getattr(around, "__qualname__", type(around).__name__)
    try:
        inspect.signature(around).bind()
    except TypeError as error:
        raise ConfigError(f"lifespan {name!r} must be {_SHAPE}: {error}") from error
    if inspect.isasyncgenfunction(around):
        return Lifespan(name, asynccontextmanager(around))
    if inspect.iscoroutinefunction(around) or inspect.isgeneratorfunction(around):
        missing = "a yield" if inspect.iscoroutinefunction(around) else "async"
        raise ConfigError(f"lifespan {name!r} must be {_SHAPE}: {missing} is missing")
    return Lifespan(name, around)  # type: ignore[arg-type]  # its result is checked at the start
