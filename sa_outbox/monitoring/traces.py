"""OpenTelemetry: a span for each added event, and for each attempt to handle it.

The extra ``sa_outbox[otel]`` is the API only; unless the program configures an SDK, no span is
recorded. The first attempt continues the trace in which the event was added. A later attempt may
come hours later: it starts its own trace, with a link; so does a batch, with a link to each of its
events. No attribute holds a payload, a key, a tenant or an error's text.

The names are those of OpenTelemetry's conventions for messaging. Sentry's page of queues needs a
few more, which others ignore: ``sentry.op``, how often a message was retried, how long it waited.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sa_outbox._version import __version__
from sa_outbox.clock import clock
from sa_outbox.errors import ConfigError
from sa_outbox.event import tracing
from sa_outbox.policy.error.tracebacks import fingerprint_of, name_of, traceback_of, traceback_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

    from sa_outbox.event.event import Event
    from sa_outbox.policy.error.tracebacks import Raised

MAX_LINKS = 100
"""Maximum links of a batch: an SDK keeps 128 by default."""
_CARRIED = ("traceparent", "tracestate")
_SYSTEM = {"messaging.system": "sa_outbox"}


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Create spans in this process from now on, with the program's own provider or this one.

    Call it before a consumer starts. Raises :class:`ConfigError` when OpenTelemetry's API is not
    installed.
    """
    tracing.present = _Traces(tracer_provider)


def uninstrument() -> None:
    """Stop creating spans. A running consumer keeps creating them until it stops."""
    tracing.present = None


class _Traces:
    def __init__(self, tracer_provider: TracerProvider | None) -> None:
        try:
            self._api: Any = import_module("opentelemetry.trace")
            context: Any = import_module("opentelemetry.context")
            carrying: Any = import_module("opentelemetry.trace.propagation.tracecontext")
        except ImportError as error:
            raise ConfigError("traces need OpenTelemetry: pip install 'sa_outbox[otel]'") from error
        self._tracer = self._api.get_tracer("sa_outbox", __version__, tracer_provider)
        # In this format whatever the program's own is: both sides are ours.
        self._propagator = carrying.TraceContextTextMapPropagator()
        self._root: Context = context.Context()
        self._is_given = tracer_provider is not None

    def _is_configured(self) -> bool:
        """Whether there is an SDK. Checked each time, for programs that set it up late."""
        provider = self._api.get_tracer_provider()
        return self._is_given or not isinstance(provider, self._api.ProxyTracerProvider)

    def added(self, event: Event[Any], headers: dict[str, str | int]) -> None:
        """One span per event, so that each has its own handlers below it."""
        if not self._is_configured():
            return
        with self._tracer.start_as_current_span(
            f"outbox.add {event.event_type}",
            kind=self._api.SpanKind.PRODUCER,
            attributes={
                **_SYSTEM,
                "messaging.operation.name": "outbox.add",
                "messaging.operation.type": "create",
                "messaging.destination.name": event.event_type,
                "messaging.message.id": str(event.event_id),
                "sentry.op": "queue.publish",
            },
        ):
            carried: dict[str, str] = {}
            self._propagator.inject(carried)
        if "traceparent" not in headers:  # else the caller knows better
            headers.update(carried)

    @contextmanager
    def handling(
        self, listener: str, events: Sequence[Event[Any]], *, attempt: int, batch: bool
    ) -> Iterator[_Attempt]:
        if not self._is_configured():
            yield _Attempt(self._api.INVALID_SPAN, self._api)
            return
        types = {each.event_type for each in events}
        name = types.pop() if len(types) == 1 else "(several types)"
        attributes: dict[str, str | int | float] = {
            **_SYSTEM,
            "messaging.operation.name": "outbox.handle",
            "messaging.operation.type": "process",
            "messaging.destination.name": name,
            "messaging.consumer.group.name": listener,
            "sa_outbox.attempt": attempt,
            "sentry.op": "queue.process",
            "messaging.message.retry.count": attempt - 1,
        }
        if attempt == 1 and (waited := _waited_ms(events)) is not None:
            attributes["messaging.message.receive.latency"] = waited
        if batch:
            attributes["messaging.batch.message_count"] = len(events)
        else:
            attributes["messaging.message.id"] = str(events[0].event_id)
        first = not batch and attempt == 1
        parent = self._extracted(events[0]) if first else self._root
        with self._tracer.start_as_current_span(
            f"outbox.handle {name}",
            context=parent,
            kind=self._api.SpanKind.CONSUMER,
            attributes=attributes,
            links=[] if first else self._links(events),
            record_exception=False,  # with its text, which may quote data
            set_status_on_exception=False,
        ) as span:
            ended = _Attempt(span, self._api)
            try:
                yield ended
            except BaseException as error:
                ended.failed(error)
                raise

    def _extracted(self, event: Event[Any]) -> Context:
        # Not only our producers write to the log; invalid values are ignored.
        found = {
            name: value for name in _CARRIED if isinstance(value := event.headers.get(name), str)
        }
        context: Context = self._propagator.extract(found, context=self._root)
        return context

    def _links(self, events: Sequence[Event[Any]]) -> list[Link]:
        spans = [
            self._api.get_current_span(self._extracted(each)).get_span_context()
            for each in events[:MAX_LINKS]
        ]
        return [self._api.Link(each) for each in spans if each.is_valid]


def _waited_ms(events: Sequence[Event[Any]]) -> float | None:
    """How long the one that waited longest could have been handled, by the clock of this process.
    A retry waits on purpose."""
    times = [
        max(each.created_at, each.run_at or each.created_at)
        for each in events
        if each.created_at is not None
    ]
    if not times:
        return None
    return max(0.0, (clock.current() - min(times)).total_seconds() * 1000)


class _Attempt:
    def __init__(self, span: Span, api: Any) -> None:
        self._span = span
        self._api = api

    def failed(self, error: BaseException) -> None:
        """Record its class, its fingerprint and where it was raised; not its text, nor lines of
        code: nothing that the program's own ``redact`` would have to see."""
        found = [_without_code(each) for each in traceback_of(error)]
        name, mark = name_of(error), fingerprint_of(error)
        self._span.set_attribute("error.type", name)
        self._span.set_attribute("sa_outbox.error.fingerprint", mark)
        recorded = {"exception.type": name, "exception.stacktrace": traceback_text(found)}
        self._span.add_event("exception", {**recorded, "sa_outbox.error.fingerprint": mark})
        self._span.set_status(self._api.Status(self._api.StatusCode.ERROR))


def _without_code(raised: Raised) -> dict[str, Any]:
    steps = tuple(each._replace(code="") for each in raised.steps)
    return replace(raised, steps=steps).as_json()
