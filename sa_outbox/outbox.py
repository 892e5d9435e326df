"""``Outbox``: the one object a program makes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from .producer.producer import Producer
from .settings import Limits, Names, Settings

if TYPE_CHECKING:
    from .settings import Notify


class Outbox(Producer):
    """A transactional outbox: its names, its limits, the sessions that write to it.

    ::

        outbox = Outbox()
        Session = outbox.async_sessionmaker(engine)

        async with Session.begin() as session:
            session.add(order)
            session.add_event("order.placed", lambda: {"order_id": order.id})

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
    ) -> None:
        super().__init__(
            Settings(
                names=Names(schema=schema, prefix=prefix, channel=channel),
                limits=limits or Limits(),
                notify=notify,
                idempotency_key_lifetime=idempotency_key_lifetime,
            )
        )

    def __repr__(self) -> str:
        names = self.settings.names
        return f"Outbox(schema={names.schema!r}, prefix={names.prefix!r})"
