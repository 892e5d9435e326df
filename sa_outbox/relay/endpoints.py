"""From an endpoint in the database to the listener that serves it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from sa_outbox.declare.listener import RelayOptions
from sa_outbox.errors import RelayUnavailable
from sa_outbox.event.event import Event
from sa_outbox.operations.endpoint import revealed
from sa_outbox.operations.sealing import READABLE, check_readable
from sa_outbox.policy.order import ORDER_MODES
from sa_outbox.settings import Settings

from .declaration import declare_relay
from .envelope import Plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from sa_outbox.declare.listener import Listener
    from sa_outbox.operations.endpoint import Delivering, Endpoint

    from .envelope import Envelope
    from .http import Webhook
    from .message import Answer, Message

SPARE_SECONDS = 5.0
TEST = "outbox.test"


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The program's settings for all endpoints."""

    allow: tuple[str, ...] = ()
    """Private networks that are allowed; in them, and only there, also without TLS."""
    ports: tuple[int, ...] | Literal["any"] = (80, 443)
    secrets_from_env: tuple[str, ...] = READABLE
    """Variables that an endpoint's secret may be read from, see ``operations/sealing.py``."""
    envelope: Envelope | None = None


def endpoint_options(
    *,
    allow: Iterable[str] = (),
    ports: Iterable[int] | Literal["any"] = (80, 443),
    secrets_from_env: Iterable[str] = READABLE,
    envelope: Envelope | None = None,
) -> EndpointOptions:
    """Raises :class:`ConfigError` for invalid options, before there is an endpoint."""
    return EndpointOptions(
        allow=tuple(allow),
        ports="any" if ports == "any" else tuple(ports),
        secrets_from_env=check_readable(secrets_from_env),
        envelope=envelope,
    )


class StoredEndpoint:
    """A webhook relay that disables its endpoint in the database when the endpoint reports it is
    gone."""

    keeps_order = False
    takes_batches = False
    attribute_prefix = "ce-"

    def __init__(self, webhook: Webhook, gone: Callable[[str], Awaitable[None]]) -> None:
        self._webhook = webhook
        self.max_pause: timedelta | None = webhook.max_pause
        self._gone = gone
        self._has_disabled = False
        """Once is enough: until the consumer reads the endpoints again, this knows of the 410 only,
        and would undo what somebody has enabled meanwhile."""

    def check_destination(self, destination: str) -> None:
        self._webhook.check_destination(destination)

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        answers = await self._webhook.send(messages)
        if any(self._webhook.is_gone(each.destination) for each in messages):
            if not self._has_disabled:
                await self._gone("it answered 410")
                self._has_disabled = True
            # Not a dead letter: once enabled again, it continues with this event.
            away = RelayUnavailable("the endpoint is gone, and disabled")
            return [None if each is None else away for each in answers]
        return answers

    async def close(self) -> None:
        await self._webhook.close()


def endpoint_listener(
    endpoint: Endpoint,
    settings: Settings,
    options: EndpointOptions | None,
    gone: Callable[[str], Awaitable[None]],
) -> Listener:
    """The listener of an endpoint. Raises :class:`ConfigError` if it can't be served."""
    chosen = options or EndpointOptions()
    webhook = _webhook(endpoint, chosen)
    webhook.check_destination(endpoint.url)
    return _declared(endpoint, webhook, settings, chosen, gone)


def _declared(
    endpoint: Endpoint,
    webhook: Webhook,
    settings: Settings,
    options: EndpointOptions,
    gone: Callable[[str], Awaitable[None]],
) -> Listener:
    how = endpoint.delivering

    def choose(event: Event[Any]) -> str | None:
        return endpoint.url if how.tenant is None or event.tenant == how.tenant else None

    return declare_relay(
        endpoint.listener,
        StoredEndpoint(webhook, gone),
        on=how.on,
        to=choose,
        envelope=options.envelope,
        map=None,
        timeout=timedelta(seconds=how.timeout + SPARE_SECONDS),
        tenant=how.tenant,
        options=_listener_options(how) | {"retry": webhook.retry, "start": "now"},
        settings=settings,
    )


def check_endpoint(endpoint: Endpoint, options: EndpointOptions | None = None) -> None:
    """Raises :class:`ConfigError` if no consumer could serve it, whatever its environment."""

    async def gone(_why: str) -> None: ...

    # Its secrets may be in the consumer's environment, not in this one.
    endpoint_listener(replace(endpoint, secrets=(), bearer=None), Settings(), options, gone)


def check_delivering(endpoint: Endpoint) -> None:
    """Raises :class:`ConfigError` if no consumer could serve what it asks for, whatever its URL."""

    async def gone(_why: str) -> None: ...

    plain, options = replace(endpoint, secrets=(), bearer=None), EndpointOptions()
    _declared(plain, _webhook(plain, options), Settings(), options, gone)


async def send_test(endpoint: Endpoint, options: EndpointOptions | None = None) -> Answer:
    """Send one message now and return the answer."""
    webhook = _webhook(endpoint, options or EndpointOptions())
    event: Event[Any] = Event(TEST, {"test": True}, created_at=datetime.now(UTC), position=0)
    message = Plain().wrap(event, endpoint.url, epoch=0, prefix=webhook.attribute_prefix)
    try:
        webhook.check_destination(endpoint.url)
        (answer,) = await webhook.send([message])
    finally:
        await webhook.close()
    return answer


def _listener_options(how: Delivering) -> dict[str, Any]:
    """What an endpoint is stored with and every relay has is passed on."""
    options: dict[str, Any] = {
        each.name: getattr(how, each.name)
        for each in fields(how)
        if each.name in RelayOptions.__optional_keys__
    }
    if ORDER_MODES[how.order].is_one_at_a_time:
        options["concurrency"] = 1  # an operator need not say so
    return options


def _webhook(endpoint: Endpoint, options: EndpointOptions) -> Webhook:
    from .http import Webhook  # noqa: PLC0415 - needs its extra

    secrets, bearer = revealed(endpoint, options.secrets_from_env)
    return Webhook(
        secrets=secrets,
        bearer=bearer,
        timeout=timedelta(seconds=endpoint.delivering.timeout),
        retry_410=endpoint.delivering.retry_410,
        probe_interval=timedelta(seconds=endpoint.delivering.probe_interval),
        allow=options.allow,
        allow_http="inside" if options.allow else False,
        ports=options.ports,
    )
