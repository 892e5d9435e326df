"""``Outbox``: the one object a program creates."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from .client.client import Client
from .client.inbox import Inbox
from .declare.cron import Cron
from .declare.declaration import H, decorator, given_options
from .declare.lifespan import A, Lifespan, inspect_lifespan
from .declare.listener import ListenerOptions, QueueOptions, RelayOptions
from .declare.queue import QueueDeclaration
from .declare.recurring import Crons, Recurring
from .event.types import event_types
from .settings import Limits, Names, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from .declare.cron import Missed
    from .declare.type_patterns import On
    from .event.event import Event, Json
    from .policy.category import Category, Given
    from .policy.contract import Contract
    from .relay import Envelope, Message, Relay
    from .relay.endpoints import EndpointOptions
    from .settings import Alerts, Audit, Notify


class Outbox(Client):
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
        check_event: Callable[[Event[Any]], None] | None = None,
        categories: Given | None = None,
        tenant_setting: str | None = None,
        audit: Audit = "off",
        alerts: Alerts = "off",
    ) -> None:
        super().__init__(
            Settings(
                names=Names(schema=schema, prefix=prefix, channel=channel),
                limits=Limits() if limits is None else limits,
                notify=notify,
                idempotency_key_lifetime=idempotency_key_lifetime,
                redact=redact,
                contract=contract,
                check_event=check_event,
                categories=categories,
                tenant_setting=tenant_setting,
                audit=audit,
                alerts=alerts,
            )
        )
        self.crons: Crons = Crons()
        self.lifespans: list[Lifespan] = []
        """Entered in this order by a consumer, and left in the reverse order."""
        self.endpoints: EndpointOptions | None = None
        """How the webhook endpoints in the database are served; None: they are not."""
        self.inbox: Inbox = Inbox(self.tables, self.settings.names)
        """For the receiving side: act on another system's message exactly once."""

    def category_of(self, event_type: str | type) -> Category:
        """The category of an event type, given by name or class; ``default`` if ``categories`` does
        not mention it."""
        name = event_types.of(event_type).name if isinstance(event_type, type) else event_type
        return self.settings.category_by_type.of(name)

    def listener(
        self,
        name: str,
        *,
        on: On | None = None,
        **options: Unpack[ListenerOptions],
    ) -> Callable[[H], H]:
        """Decorator: this function handles the events *on*, under a cursor of its own.

        The function takes ``(event)`` or ``(event, session)``, or ``(events: Sequence[Event])``
        for batches; async, or sync to run in a thread. What it does through the session happens
        exactly once, in the transaction that moves the cursor. *on* may be left out when the
        argument is annotated as ``Event[OrderPlaced]``.
        :class:`sa_outbox.declare.listener.ListenerOptions` has the options; docs/handlers.md
        explains them.
        """
        chosen = given_options("listener", options, ListenerOptions.__optional_keys__)
        return decorator(name, on, chosen, self.listeners)

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> QueueDeclaration:
        """A queue (a listener with ``order="none"``) to which handlers are added.

        ::

            @outbox.queue("notifications")  # every event whose category names this queue
            async def notify(event: Event) -> None: ...

            exports = outbox.queue("exports", concurrency=4)

            @exports.on("export.requested")  # or a handler for each event type
            async def make(event: Event) -> None: ...

        :class:`sa_outbox.declare.listener.QueueOptions` has the options; docs/queues.md explains
        them.
        """
        chosen = given_options("queue", options, QueueOptions.__optional_keys__)
        return QueueDeclaration(name, chosen, self.listeners)

    def lifespan(self, function: A) -> A:
        """Decorator: what handlers share, set up before the first one and torn down after the last.

        ::

            @outbox.lifespan
            async def clients() -> AsyncIterator[None]:
                global http
                async with httpx.AsyncClient() as http:
                    yield

        A consumer calls it once: before it claims a lease, in its event loop. What follows the
        ``yield`` is run when it has released its leases, within the grace period. If it raises,
        ``run()`` and ``drain()`` raise :class:`LifespanError`. docs/handlers.md explains the rest.
        """
        self.lifespans.append(inspect_lifespan(function))
        return function

    def relay(
        self,
        name: str,
        relay: Relay,
        *,
        on: On,
        to: str | Callable[[Event[Any]], str | None] | None = None,
        envelope: Envelope | None = None,
        map: Callable[[Event[Any]], Message | None] | None = None,  # noqa: A002 - what it is
        timeout: timedelta = timedelta(seconds=30),
        max_pause: timedelta | None = None,
        **options: Unpack[RelayOptions],
    ) -> None:
        """Forward the events *on* to another system, under a cursor of its own.

        ::

            outbox.relay("orders-to-kafka", Kafka("kafka:9092"), on="order.*", to="orders")

        *to* is a topic, subject, stream, routing key or address. ``"orders.{event_type}"`` is
        filled in from the event; a function chooses for each event, and None means do not send.
        *envelope* turns an event into a message: ``Plain()`` or ``CloudEvents(source=...)``; *map*
        replaces all of that. *timeout* is how long the receiver may take for a batch, *max_pause*
        the longest time until one that can't be reached is tried again. The other options are a
        listener's, :class:`sa_outbox.declare.listener.RelayOptions`; docs/relays.md explains them.
        """
        from .relay.declaration import declare_relay  # noqa: PLC0415 - for programs that have relays

        self.listeners.add(
            declare_relay(
                name,
                relay,
                on=on,
                to=to,
                envelope=envelope,
                map=map,
                timeout=timeout,
                max_pause=max_pause,
                options=given_options("relay", options, RelayOptions.__optional_keys__),
                settings=self.settings,
            )
        )

    def webhooks(
        self,
        *,
        allow: Iterable[str] = (),
        ports: Iterable[int] | Literal["any"] = (80, 443),
        secrets_from_env: Iterable[str] = ("SA_OUTBOX_WEBHOOK_*",),
        envelope: Envelope | None = None,
    ) -> None:
        """Serve the webhook endpoints that are in the database: ``sa-outbox endpoints add``.

        Each is a listener of its own, ``webhook:NAME``. *allow* lists private networks that
        endpoints may be in, such as ``"10.1.0.0/16"``; by default only public addresses are
        allowed. *ports* are those that may be dialled, or ``"any"``. *secrets_from_env* are the
        environment variables that may hold an endpoint's secret; a trailing ``*`` matches
        anything. docs/endpoints.md explains the rest.
        """
        from .relay.endpoints import endpoint_options  # noqa: PLC0415 - for programs that have them

        self.endpoints = endpoint_options(
            allow=allow, ports=ports, secrets_from_env=secrets_from_env, envelope=envelope
        )

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

        The consumers do this, as long as at least one is running. *event* is an event type and its
        payload, or an object of a registered class. *missed* decides what happens to ticks that
        passed while none was running: ``"one"`` event for all of them, ``"skip"``, or ``"all"``,
        the last 1000. The headers of each event have ``cron``, the *name* (by default the event
        type), and ``tick``, its time. docs/scheduling.md explains the rest.
        """
        cron = Cron(expression, time_zone)
        options: dict[str, Any] = {"name": name, "key": key, "tenant": tenant}
        options |= {"headers": headers, "priority": priority, "missed": missed}
        self.crons.add(Recurring(cron, event, payload, self.settings, **options))

    def __repr__(self) -> str:
        names = self.settings.names
        return f"Outbox(schema={names.schema!r}, prefix={names.prefix!r})"
