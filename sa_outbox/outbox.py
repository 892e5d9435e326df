"""``Outbox``: the one object a program makes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack, overload

from .cancelling import Cancelling
from .cron import Cron
from .event_types import event_types
from .inbox import Inbox
from .listener import H, Listeners, On, Order, Start, decorator
from .place import run
from .producer.producer import Producer
from .recurring import Crons, Recurring
from .settings import Limits, Names, Settings
from .status import Statuses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import EllipsisType
    from uuid import UUID

    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session

    from .cancelling import Answer
    from .category import Category, Given
    from .contract import Contract
    from .cron import Missed
    from .dashboard import Dashboard, DashboardOptions
    from .event import Event, Json
    from .place import AsyncPlace, SyncPlace
    from .rate import Rate
    from .relay import Envelope, Message, Relay
    from .relay.endpoints import EndpointOptions
    from .retry import RetryPolicy
    from .settings import Alerts, Audit, Notify
    from .status import EventStatus


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
        contract: Contract | None = None,
        categories: Given | None = None,
        tenant_setting: str | None = None,
        audit: Audit = "off",
        alerts: Alerts = "off",
    ) -> None:
        super().__init__(
            Settings(
                names=Names(schema=schema, prefix=prefix, channel=channel),
                limits=limits or Limits(),
                notify=notify,
                idempotency_key_lifetime=idempotency_key_lifetime,
                redact=redact,
                contract=contract,
                categories=categories,
                tenant_setting=tenant_setting,
                audit=audit,
                alerts=alerts,
            )
        )
        self.listeners = Listeners(self.settings)
        self.crons = Crons()
        self.endpoints: EndpointOptions | None = None
        """How the webhook endpoints of the database are served; None: they are not."""
        self.inbox = Inbox(self.tables, self.settings.names)
        """For the receiving side: act on a message of another system once."""
        self._cancelling = Cancelling(self.tables, self.settings, self.listeners)
        self._status = Statuses(self.tables, self.settings, self.listeners)

    def category_of(self, event_type: str | type) -> Category:
        """The category of an event type, given by its name or its class; ``default`` for one that
        ``categories`` says nothing of."""
        name = event_types.of(event_type).name if isinstance(event_type, type) else event_type
        return self.settings.category_by_type.of(name)

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
        rate: Rate | None = None,
        tenant_concurrency: int | None = None,
        tenant_rate: Rate | None = None,
        external: bool | None = None,
        cancellable: bool | None = None,
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
            "rate": rate,
            "tenant_concurrency": tenant_concurrency,
            "tenant_rate": tenant_rate,
            "external": external,
            "cancellable": cancellable,
        }
        given: dict[str, Any] = {key: each for key, each in options.items() if each is not None}
        # None is a value for these two: no limit.
        limits = {"timeout": timeout, "gap_wait": gap_wait}
        given |= {key: each for key, each in limits.items() if each is not ...}
        return decorator(name, on, given, self.listeners)

    def relay(
        self,
        name: str,
        relay: Relay,
        *,
        on: On,
        to: str | Callable[[Event[Any]], str | None] | None = None,
        envelope: Envelope | None = None,
        map: Callable[[Event[Any]], Message | None] | None = None,  # noqa: A002 - what it is
        order: Order | None = None,
        concurrency: int | None = None,
        partitions: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta = timedelta(seconds=30),
        batch_size: int | None = None,
        start: Start | None = None,
    ) -> None:
        """Forward the events *on* to another system, under a cursor of its own.

        ::

            outbox.relay("orders-to-kafka", Kafka("kafka:9092"), on="order.*", to="orders")

        *to* is a topic, subject, stream, routing key or address; ``"orders.{event_type}"`` has the
        event's in it, and a function chooses; None: it is not sent. *envelope* puts an event into a
        message, ``Plain()`` or ``CloudEvents(source=...)``; *map* does all of it instead. *timeout*
        is how long the other side may take for a batch. The other options are those of a listener;
        docs/relays.md explains them.
        """
        from .relay.declaring import declare_relay  # noqa: PLC0415 - for programs that have relays

        options = {
            "order": order,
            "concurrency": concurrency,
            "partitions": partitions,
            "retry": retry,
            "batch_size": batch_size,
            "start": start,
        }
        given = {key: each for key, each in options.items() if each is not None}
        self.listeners.add(
            declare_relay(
                name,
                relay,
                on=on,
                to=to,
                envelope=envelope,
                map=map,
                timeout=timeout,
                options=given,
                settings=self.settings,
            )
        )

    def webhooks(self, *, allow: Iterable[str] = (), envelope: Envelope | None = None) -> None:
        """Serve the webhook endpoints that are in the database: ``sa-outbox endpoints add``.

        Each is a listener of its own, ``webhook:NAME``. *allow* are networks inside of which
        endpoints may be, such as ``"10.1.0.0/16"``: by default they are out in the world.
        docs/endpoints.md explains the rest.
        """
        from .relay.endpoints import EndpointOptions  # noqa: PLC0415 - as in relay()

        self.endpoints = EndpointOptions(allow=tuple(allow), envelope=envelope)

    def cron(
        self,
        expression: str,
        event: object,
        /,
        payload: Json = None,
        *,
        time_zone: str,
        name: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        missed: Missed = "one",
    ) -> None:
        """Add an *event* at each tick of a cron *expression*, once however many consumers run.

        ::

            outbox.cron("0 3 * * *", "maintenance.purge", time_zone="Europe/Berlin")

        The consumers do it, for as long as one of them runs. *event* is an event type and its
        payload, or an object of a registered class. *missed* says what becomes of ticks that
        passed while none ran: ``"one"`` event for all of them, ``"skip"``, or ``"all"``, the last
        1000. The headers of each event have ``cron``, the *name* (by default the event type), and
        ``tick``, its time. docs/scheduling.md explains the rest.
        """
        cron = Cron(expression, time_zone)
        options: dict[str, Any] = {"name": name, "key": key, "tenant": tenant}
        options |= {"headers": headers, "priority": priority, "missed": missed}
        self.crons.add(Recurring(cron, event, payload, self.settings, **options))

    @overload
    def cancel(
        self,
        session: AsyncPlace,
        event_id: UUID | str,
        *,
        reason: str | None = ...,
        listener: str | None = ...,
    ) -> Awaitable[dict[str, Answer]]: ...

    @overload
    def cancel(
        self,
        session: SyncPlace,
        event_id: UUID | str,
        *,
        reason: str | None = ...,
        listener: str | None = ...,
    ) -> dict[str, Answer]: ...

    def cancel(
        self,
        session: SyncPlace | AsyncPlace,
        event_id: UUID | str,
        *,
        reason: str | None = None,
        listener: str | None = None,
    ) -> Any:
        """Cancel an event for the queues that listen to it, or for one *listener*.

        ::

            answers = await outbox.cancel(session, event_id, reason="the customer called")

        Without ``await`` for a sync session or connection. In the caller's transaction: rolled
        back, nothing was cancelled. What was not started never starts; what runs is asked to give
        up. The answers are by listener: ``"cancelled"``, ``"requested"``, ``"done"``, ``"dead"``,
        ``"ordered"`` or ``"unknown"``; docs/scheduling.md explains them.

        Raises :class:`EventNotFound`, and :class:`NotAtomic` in AUTOCOMMIT.
        """

        def work(place: Session | Connection) -> dict[str, Answer]:
            return self._cancelling.cancel(place, event_id, reason, listener)

        return run(session, "whose transaction cancels the event", work)

    @overload
    def status(self, session: AsyncPlace, event_id: UUID | str, /) -> Awaitable[EventStatus]: ...

    @overload
    def status(self, session: SyncPlace, event_id: UUID | str, /) -> EventStatus: ...

    @overload
    def status(
        self,
        session: AsyncPlace,
        /,
        *,
        idempotency_key: str,
        event_type: str | type,
        tenant: str | None = ...,
    ) -> Awaitable[EventStatus]: ...

    @overload
    def status(
        self,
        session: SyncPlace,
        /,
        *,
        idempotency_key: str,
        event_type: str | type,
        tenant: str | None = ...,
    ) -> EventStatus: ...

    def status(
        self,
        session: SyncPlace | AsyncPlace,
        event_id: UUID | str | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        event_type: str | type | None = None,
        tenant: str | None = None,
    ) -> Any:
        """What became of an event, for each listener that it concerns.

        ::

            status = await outbox.status(session, event_id)
            status = await outbox.status(
                session, idempotency_key="o-1", event_type="order.paid", tenant="acme"
            )
            status.listeners["exports"].state  # "pending", "running", "succeeded", ...

        Without ``await`` for a sync session or connection. All of it is of one moment.
        docs/idempotency.md explains the states. Raises :class:`EventNotFound`.
        """
        wanted = self._status.wanted(event_id, idempotency_key, event_type, tenant)

        def work(place: Session | Connection) -> EventStatus:
            return self._status.ask(place, wanted)

        return run(session, "by which to ask", work)

    def dashboard(
        self, database: str | URL | Engine | AsyncEngine, **options: Unpack[DashboardOptions]
    ) -> Dashboard:
        """An ASGI application to see and repair this outbox; docs/dashboard.md explains it."""
        from .dashboard import Dashboard  # noqa: PLC0415 - needs the extra of its name

        return Dashboard(self, database, **options)

    def __repr__(self) -> str:
        names = self.settings.names
        return f"Outbox(schema={names.schema!r}, prefix={names.prefix!r})"
