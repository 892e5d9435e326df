"""From an endpoint in the database to the listener that serves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sa_outbox.errors import RelayUnavailable
from sa_outbox.event import Event
from sa_outbox.operations.endpoints import revealed
from sa_outbox.settings import Settings

from .declaring import declare_relay
from .envelope import Plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sa_outbox.listener import Listener
    from sa_outbox.operations.endpoints import Endpoint

    from .envelope import Envelope
    from .http import Webhook
    from .message import Answer, Message

SPARE = 5.0
TEST = "outbox.test"


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What the program says of all endpoints."""

    allow: tuple[str, ...] = ()
    envelope: Envelope | None = None


class StoredEndpoint:
    """A webhook relay that disables its endpoint in the database when that says it is gone."""

    keeps_order = False
    takes_batches = False
    attribute_prefix = "ce-"

    def __init__(self, webhook: Webhook, gone: Callable[[str], Awaitable[None]]) -> None:
        self._webhook = webhook
        self._gone = gone

    def check_destination(self, destination: str) -> None:
        self._webhook.check_destination(destination)

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        answers = await self._webhook.send(messages)
        if any(self._webhook.is_gone(each.destination) for each in messages):
            await self._gone("it answered 410")
            # Not a dead letter: enabled again, it goes on with this event.
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
    """Raises :class:`ConfigError` for one that can't be served."""
    chosen = options or EndpointOptions()
    how = endpoint.delivering

    def choose(event: Event[Any]) -> str | None:
        return endpoint.url if how.tenant is None or event.tenant == how.tenant else None

    webhook = _webhook(endpoint, chosen)
    webhook.check_destination(endpoint.url)
    return declare_relay(
        endpoint.listener,
        StoredEndpoint(webhook, gone),
        on=how.on,
        to=choose,
        envelope=chosen.envelope,
        map=None,
        timeout=timedelta(seconds=how.timeout + SPARE),
        options={
            "order": how.order,
            "concurrency": 1 if how.order == "total" else how.concurrency,
            "retry": webhook.retry,
            "start": "now",
        },
        settings=settings,
    )


def check_endpoint(endpoint: Endpoint, options: EndpointOptions | None = None) -> None:
    """Raises :class:`ConfigError` if no consumer could serve it, whatever its environment."""

    async def gone(_why: str) -> None: ...

    # Its secrets may be those of the consumer's environment, not of this one.
    endpoint_listener(replace(endpoint, secrets=(), bearer=None), Settings(), options, gone)


async def send_test(endpoint: Endpoint, options: EndpointOptions | None = None) -> Answer:
    """Send one message now; what became of it."""
    webhook = _webhook(endpoint, options or EndpointOptions())
    event: Event[Any] = Event(TEST, {"test": True}, created_at=datetime.now(UTC), position=0)
    message = Plain().wrap(event, endpoint.url, epoch=0, prefix=webhook.attribute_prefix)
    try:
        webhook.check_destination(endpoint.url)
        (answer,) = await webhook.send([message])
    finally:
        await webhook.close()
    return answer


def _webhook(endpoint: Endpoint, options: EndpointOptions) -> Webhook:
    from .http import Webhook  # noqa: PLC0415 - needs its extra

    secrets, bearer = revealed(endpoint)
    return Webhook(
        secrets=secrets,
        bearer=bearer,
        timeout=timedelta(seconds=endpoint.delivering.timeout),
        allow=options.allow,
        allow_http=bool(options.allow),
    )
