"""``Outbox``: the one object a program makes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .listener import H, Listeners, On, Order, Start, decorator
from .producer.producer import Producer
from .settings import Limits, Names, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import EllipsisType

    from .retry import RetryPolicy
    from .settings import Notify


class Outbox(Producer):
    """A transactional outbox: its names, its limits, the sessions that write to it, its listeners.

    ::

        outbox = Outbox()
        Session = outbox.async_sessionmaker(engine)

        async with Session.begin() as session:
            session.add(order)
            session.add_event("order.placed", lambda: {"order_id": order.id})

        @outbox.listener("billing", on="order.*")
        async def charge(event: Event, session: AsyncSession) -> None: ...

    The arguments are those of :class:`sa_outbox.settings.Names` and
    :class:`sa_outbox.settings.Settings`; docs/settings.md explains each.
    """

    def __init__(
        self,
        *,
        schema: str | None = None,
        prefix: str = "outbox",
        channel: str | None = None,
        notify: Notify = "on",
        limits: Limits | None = None,
        idempotency_key_lifetime: timedelta = timedelta(days=7),
        redact: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(
            Settings(
                names=Names(schema=schema, prefix=prefix, channel=channel),
                limits=limits or Limits(),
                notify=notify,
                idempotency_key_lifetime=idempotency_key_lifetime,
                redact=redact,
            )
        )
        self.listeners = Listeners()

    def listener(
        self,
        name: str,
        *,
        on: On | None = None,
        order: Order | None = None,
        concurrency: int | None = None,
        partitions: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | EllipsisType | None = ...,
        batch_size: int | None = None,
        start: Start | None = None,
        gap_wait: timedelta | EllipsisType | None = ...,
        external: bool | None = None,
    ) -> Callable[[H], H]:
        """Decorator: this function handles the events *on*, under a cursor of its own.

        The function takes ``(event)`` or ``(event, session)``, or ``(events: Sequence[Event])``
        for batches; async, or sync to run in a thread. What it does through the session happens
        exactly once, in the transaction that moves the cursor. *on* may be left out when the
        argument is annotated as ``Event[OrderPlaced]``. The options are the fields of
        :class:`sa_outbox.listener.Listener`; docs/handlers.md explains them.
        """
        options = {
            "order": order,
            "concurrency": concurrency,
            "partitions": partitions,
            "retry": retry,
            "batch_size": batch_size,
            "start": start,
            "external": external,
        }
        given: dict[str, Any] = {key: each for key, each in options.items() if each is not None}
        # None is a value for these two: no limit.
        limits = {"timeout": timeout, "gap_wait": gap_wait}
        given |= {key: each for key, each in limits.items() if each is not ...}
        return decorator(name, on, given, self.listeners)

    def __repr__(self) -> str:
        names = self.settings.names
        return f"Outbox(schema={names.schema!r}, prefix={names.prefix!r})"
