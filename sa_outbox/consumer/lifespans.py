"""The program's lifespans: entered before the first handler, left after the last.

All in one task and inside one cancel scope, whose deadline is set only at the end: a lifespan may
hold a task group across its ``yield``, and scopes have to be left in the reverse order in which
they were entered. A scope around the end alone would be left out of order.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from sa_outbox.errors import LifespanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sa_outbox.declare.lifespan import Lifespan


class Lifespans:
    """The lifespans of one run. It may restart with other listeners; each is entered once."""

    def __init__(self, declared: Sequence[Lifespan], seconds_left: Callable[[], float]) -> None:
        """*seconds_left*: how long they may take, all together, to be left."""
        self._declared = declared
        self._seconds_left = seconds_left
        self._entered: list[tuple[str, AbstractAsyncContextManager[Any]]] = []
        self._failed: LifespanError | None = None
        """What was wrong at the end."""

    async def enter(self) -> None:
        """Raises :class:`LifespanError`; those entered before it are left by ``around``."""
        for lifespan in self._declared[len(self._entered) :]:
            try:
                manager = lifespan.make()
                if not isinstance(manager, AbstractAsyncContextManager):
                    kind = type(manager).__name__
                    raise TypeError(f"{kind!r} is not an async context manager")  # noqa: TRY301
                await manager.__aenter__()
            except Exception as error:
                # Not as it is: one about a connection would be taken for the database's.
                raise LifespanError(
                    f"lifespan {lifespan.name!r} raised {type(error).__name__} at the start: no "
                    "lease was claimed and no handler called",
                    lifespan=lifespan.name,
                ) from error
            self._entered.append((lifespan.name, manager))

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Leave them, whatever ends what is inside. Raises :class:`LifespanError` if that fails,
        unless there is an error already, which then has a note."""
        if not self._declared:
            yield
            return
        ended: BaseException | None = None
        with CancelScope() as scope:
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again
                ended = error
            scope.shield = True
            scope.deadline = anyio.current_time() + self._seconds_left()
            await self._leave()
        failed = self._failed
        if failed is not None and isinstance(ended, Exception):
            ended.add_note(str(failed))
        elif failed is not None:
            raise failed
        if ended is not None:
            raise ended

    async def _leave(self) -> None:
        """In reverse order. None keeps the others from being left; the first failure counts."""
        cancelled: BaseException | None = None
        while self._entered:
            name, manager = self._entered.pop()
            try:
                # As after a proper end, whatever ended the run: what follows the yield is run.
                await manager.__aexit__(None, None, None)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = cancelled or error
                self._fail(name, "took too long to end and was cancelled", None)
            except Exception as error:  # noqa: BLE001 - raised at the end
                self._fail(name, f"raised {type(error).__name__} at the end", error)
        if cancelled is not None:
            raise cancelled

    def _fail(self, name: str, what: str, error: Exception | None) -> None:
        if self._failed is None:
            message = f"lifespan {name!r} {what}. All leases had been released"
            self._failed = LifespanError(message, lifespan=name)
            self._failed.__cause__ = error
