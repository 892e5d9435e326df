"""Webhooks: each event is one signed POST.

httpcore2, the HTTP layer of httpx2, and not httpx2 itself: it follows no redirects, reads no proxy
from the environment, keeps no cookies and decompresses nothing, so none of that has to be switched
off; and it uses our own ``Guarded`` for each connection.

What a stranger's server can do to us is bounded: in time by one deadline for everything from the
name to the response (a time limit per read never fires on a server that sends a byte per second),
in memory by reading 64 kB of a response and then closing.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import anyio
import httpcore2

from sa_outbox.clock import clock
from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.policy.backoff import RELAY_PAUSE
from sa_outbox.policy.checks import ONE_DAY, check_span
from sa_outbox.policy.retry import RetryPolicy
from sa_outbox.policy.retry_after import retry_after
from sa_outbox.webhooks import keys_of, sign

from ..errors import with_cause
from .addresses import is_allowed, is_permitted, parse_networks
from .answers import AWAY, GONE, BadAnswer, Reply, judge
from .breaker import Breaker
from .connections import Connections
from .dial import Denied, Guarded
from .exchange import UNREACHED, exchange
from .headers import headers_of
from .secret import Secret, check_bearer, value_of
from .target import PORTS, Ports, Target, parse, parse_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sa_outbox.relay.message import Answer, Message

    from .dial import Resolve

RETRY = RetryPolicy(
    schedule=[
        timedelta(seconds=5),
        timedelta(minutes=5),
        timedelta(minutes=30),
        *(timedelta(hours=each) for each in (2, 5, 10, 14, 20, 24)),
    ]
)
"""Ten attempts over about three days: long enough for a weekend."""
PROBE_INTERVAL = timedelta(seconds=30)
MAX_KNOWN = 10_000
_LONGEST_REST = timedelta(hours=1)


class Webhook:
    """Posts events to an endpoint, ``to=`` of ``outbox.relay``.

    ::

        outbox.relay(
            "acme",
            Webhook(secrets=Secret.env("ACME_WEBHOOK_SECRET")),
            on="order.*",
            to="https://acme.example/hooks",
        )

    *secrets* sign each message; pass two during a rotation, and an empty tuple for an endpoint that
    wants no signature. *bearer* is sent as ``Authorization``. *timeout* covers a whole message,
    from resolving the name to the response; it must be less than the relay's. *allow* are private
    networks that may be sent to; *allow_http* permits URLs without TLS, ``"inside"`` only in the
    networks of *allow*. *ports* are those that may
    be dialled, or ``"any"``. *ssl_context* replaces the machine's own trust, for a certificate
    authority of your own; one that verifies nothing is refused. *retry_4xx* retries what other
    4xx responses would make a dead letter, *retry_410* what is gone. *probe_interval* is how often
    an endpoint that is down is tried. *give_up_after* is the age from which events are given up
    while it is down. *resolve* replaces the resolver.
    """

    keeps_order = False
    takes_batches = False
    attribute_prefix = "ce-"
    protocol = "http"
    retry = RETRY

    def __init__(
        self,
        *,
        secrets: str | Secret | Sequence[str | Secret],
        bearer: str | Secret | None = None,
        timeout: timedelta = timedelta(seconds=15),
        allow: Sequence[str] = (),
        allow_http: bool | Literal["inside"] = False,
        ports: Iterable[int] | Literal["any"] = PORTS,
        ssl_context: ssl.SSLContext | None = None,
        retry_4xx: bool = False,
        retry_410: bool = False,
        probe_interval: timedelta = PROBE_INTERVAL,
        give_up_after: timedelta = timedelta(days=3),
        resolve: Resolve | None = None,
    ) -> None:
        self._secrets = [secrets] if isinstance(secrets, (str, Secret)) else list(secrets)
        self._bearer = check_bearer(bearer) if isinstance(bearer, str) else bearer
        self._timeout = _seconds("timeout", timeout)
        self.deadline = timeout
        self._give_up_after = _seconds("give_up_after", give_up_after)
        self._allow = parse_networks(allow)
        self._allow_http = bool(allow_http)
        self._http_inside = allow_http == "inside"
        self._ports: Ports = parse_ports(ports)
        self._ssl_context = _checked_context(ssl_context)
        self._retry_4xx = retry_4xx
        self._retry_410 = retry_410
        self._probe_seconds = _seconds("probe_interval", probe_interval, most=ONE_DAY)
        # Nobody asks for the next probe long after it is due.
        self.max_pause: timedelta | None = probe_interval if probe_interval < RELAY_PAUSE else None
        self._resolve = resolve
        self._targets: dict[str, Target] = {}
        self._breakers: dict[str, Breaker] = {}
        self._connections: Connections | None = None
        self._keys: list[bytes] | None = None
        for each in self._secrets:
            if isinstance(each, str):
                keys_of(each)
            elif not isinstance(each, Secret):
                raise ConfigError(f"secrets are str or Secret, not {type(each).__name__}")

    @staticmethod
    def quote(field: str) -> str:
        """Quote an event's field in ``to=``: it stays within its part of the URL."""
        return quote(field, safe="")

    def check_destination(self, destination: str) -> None:
        target = parse(destination, allow_http=self._allow_http, ports=self._ports)
        if target.address is None:
            return
        if not is_permitted(target.address, self._allow):
            raise ConfigError(
                f"webhooks are not sent to {target.address}, which is not a public address; allow= "
                "permits networks of your own"
            )
        inside = is_allowed(target.address, self._allow)
        if target.scheme == "http" and self._http_inside and not inside:
            raise ConfigError(f"a webhook is sent to {target.address} by https, not by http")

    def is_gone(self, destination: str) -> bool:
        """Whether it recently answered 410."""
        return self._breaker(destination).is_gone(monotonic())

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        return [await self._post(each) for each in messages]

    async def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def _post(self, message: Message) -> Answer:
        breaker = self._breaker(message.destination)
        match breaker.ask(monotonic()):
            case "gone":
                return Undeliverable("the endpoint is gone: it answered 410 before")
            case "rest":
                return self._resting(breaker, message)
            case "go":
                pass
        try:
            request = self._request(message)
        except ConfigError as error:  # a secret is missing: this machine's fault, not the event's
            return with_cause(RelayUnavailable(str(error)), error)
        except Undeliverable as error:
            return error
        return await self._exchange(request, breaker)

    async def _exchange(self, request: httpcore2.Request, breaker: Breaker) -> Answer:
        try:
            with anyio.fail_after(self._timeout):
                reply = await self._reply(request)
        except TimeoutError as error:
            breaker.failed(monotonic())
            return with_cause(RelayError(f"no answer within {self._timeout:g} s"), error)
        except Denied as error:
            breaker.succeeded()
            return Undeliverable(str(error), kind="unknown-destination")
        except httpcore2.LocalProtocolError as error:
            # Without its text, which quotes the offending header: that may be the secret one.
            text = f"the message could not be turned into a request: {type(error).__name__}"
            return Undeliverable(text, kind="serialization")
        except UNREACHED as error:
            breaker.failed(monotonic())
            return with_cause(RelayError(f"{type(error).__name__}: {error}"), error)
        answer = judge(reply, retry_4xx=self._retry_4xx, retry_410=self._retry_410)
        self._learn(breaker, reply, answer)
        return answer

    def _learn(self, breaker: Breaker, reply: Reply, answer: Answer) -> None:
        wait = retry_after(answer, now=datetime.now(UTC)) if isinstance(answer, BadAnswer) else None
        if reply.status == GONE and not self._retry_410:
            breaker.answered_gone(monotonic())
        elif wait:
            breaker.asked_to_wait(monotonic(), min(wait, _LONGEST_REST).total_seconds())
        elif reply.status in AWAY:
            breaker.failed(monotonic())
        else:
            breaker.succeeded()

    def _resting(self, breaker: Breaker, message: Message) -> Answer:
        created_at = message.event.created_at
        if breaker.is_long_down(monotonic()) and created_at is not None:
            age = (clock.current() - created_at).total_seconds()
            if age > self._give_up_after:
                return Undeliverable("the endpoint is down, and the event is too old to wait")
        return RelayUnavailable("the endpoint is down or asked to wait; it is probed regularly")

    async def _reply(self, request: httpcore2.Request) -> Reply:
        if self._connections is None:
            context = self._ssl_context or ssl.create_default_context()
            secure = Guarded(self._allow, self._resolve)
            plain = Guarded(self._allow, self._resolve, only_allowed=self._http_inside)
            self._connections = Connections(context, secure, plain)
        return await exchange(self._connections, request)

    def _request(self, message: Message) -> httpcore2.Request:
        target = self._target(message.destination)
        headers = headers_of(message)
        headers["host"] = target.host_header
        if self._bearer is not None:
            headers["authorization"] = f"Bearer {check_bearer(value_of(self._bearer))}"
        message_id = str(message.event.event_id)
        if self._secrets:
            if self._keys is None:
                self._keys = keys_of([value_of(each) for each in self._secrets])
            headers |= sign(message.body, message_id=message_id, secrets=self._keys)
        else:
            headers["webhook-id"] = message_id
        return httpcore2.Request(
            "POST",
            httpcore2.URL(
                scheme=target.scheme.encode(),
                host=target.host.encode(),
                port=target.port,
                target=target.path.encode(),
            ),
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            content=message.body,
        )

    def _target(self, destination: str) -> Target:
        found = self._targets.get(destination)
        if found is None:
            if len(self._targets) >= MAX_KNOWN:
                self._targets.clear()
            found = parse(destination, allow_http=self._allow_http, ports=self._ports)
            self._targets[destination] = found
        return found

    def _breaker(self, destination: str) -> Breaker:
        found = self._breakers.get(destination)
        if found is None:
            if len(self._breakers) >= MAX_KNOWN:
                self._breakers.clear()
            found = self._breakers[destination] = Breaker(self._probe_seconds)
        return found


def _seconds(name: str, span: timedelta, *, most: timedelta | None = None) -> float:
    check_span(f"{name} of a Webhook", span, most=most)
    return span.total_seconds()


def _checked_context(context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if context is not None and (
        context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname
    ):
        raise ConfigError(
            "this ssl_context does not verify who answers: anyone in between could read it. Add "
            " the endpoint's authority to ssl.create_default_context(cafile=...) instead"
        )
    return context
