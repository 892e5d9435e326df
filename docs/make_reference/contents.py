"""Which page of the reference has which modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "reference"


@dataclass(frozen=True)
class Page:
    """*guide*: the page that explains how the names are used."""

    file: str
    title: str
    about: str
    guide: str
    modules: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Names of the modules, or members of their classes, that are of no use to a program."""
    also: tuple[str, ...] = ()
    """Names that one of the modules takes from elsewhere."""


STANDS_FOR = {
    "event_type": "sa_outbox.event.types.EventTypes.register",
    "upcaster": "sa_outbox.event.types.EventTypes.upcast",
}
"""Public names for methods of an object that is not public."""

_OF_RELAYS = ("check_destination", "send", "close")  # called by the consumer; see Relay

PAGES = (
    Page(
        "sa_outbox.md",
        "sa_outbox",
        "The outbox, its sessions and events, and what listeners are declared with.",
        "quickstart.md",
        ("sa_outbox",),
    ),
    Page(
        "consumer.md",
        "sa_outbox.consumer",
        "Delivers events to listeners.",
        "consuming.md",
        ("sa_outbox.consumer",),
    ),
    Page(
        "testing.md",
        "sa_outbox.testing",
        "What the fixtures of the pytest plugin return, and functions for tests without them.",
        "testing.md",
        ("sa_outbox.testing",),
    ),
    Page(
        "settings.md",
        "sa_outbox.settings",
        "Settings of an outbox and of a consumer.",
        "settings.md",
        ("sa_outbox.settings",),
        ("notify_allowed_by_environment", "ConsumerSettings"),
        also=("sa_outbox.database.names.Names",),
    ),
    Page(
        "observe.md",
        "sa_outbox.observe",
        "What a consumer reports about itself: one class for each kind of observation.",
        "consuming.md",
        ("sa_outbox.observe",),
    ),
    Page(
        "relay.md",
        "sa_outbox.relay",
        "Messages for brokers, and what a relay of your own implements.",
        "relays.md",
        ("sa_outbox.relay", "sa_outbox.relay.conformance"),
    ),
    Page(
        "brokers.md",
        "Brokers and webhooks",
        "The relays that come with the package.",
        "relays.md",
        (
            "sa_outbox.relay.kafka",
            "sa_outbox.relay.nats",
            "sa_outbox.relay.rabbitmq",
            "sa_outbox.relay.redis",
            "sa_outbox.relay.faststream",
            "sa_outbox.relay.http",
        ),
        _OF_RELAYS,
    ),
    Page(
        "webhooks.md",
        "sa_outbox.webhooks",
        "For receivers of webhooks: is this request genuine?",
        "relay-webhooks.md",
        ("sa_outbox.webhooks",),
        ("keys_of",),
    ),
    Page(
        "contrib.md",
        "sa_outbox.contrib",
        "For programs inside a web framework, or with Dishka.",
        "fastapi.md",
        (
            "sa_outbox.contrib.asgi",
            "sa_outbox.contrib.fastapi",
            "sa_outbox.contrib.litestar",
            "sa_outbox.contrib.flask",
            "sa_outbox.contrib.dishka",
        ),
        ("on_app_init",),
    ),
    Page(
        "catalog.md",
        "sa_outbox.catalog",
        "The catalogue of the events of a program, and what a change of it breaks.",
        "catalogue.md",
        ("sa_outbox.catalog",),
    ),
    Page(
        "schema.md",
        "sa_outbox.schema",
        "Creates the tables, and verifies them.",
        "schema.md",
        ("sa_outbox.schema",),
    ),
    Page(
        "operations.md",
        "sa_outbox.operations",
        "Inspect and repair: what the commands and the dashboard do, as functions of a connection.",
        "operating.md",
        (
            "sa_outbox.operations.overview",
            "sa_outbox.operations.events",
            "sa_outbox.operations.dead_letters",
            "sa_outbox.operations.resolution",
            "sa_outbox.operations.deliveries",
            "sa_outbox.operations.delivery_change",
            "sa_outbox.operations.listeners",
            "sa_outbox.operations.endpoints",
            "sa_outbox.operations.crons",
            "sa_outbox.operations.erasure",
            "sa_outbox.operations.audit",
            "sa_outbox.operations.operator",
        ),
        ("conditions", "first_id_since", "overview_of"),
    ),
    Page(
        "monitoring.md",
        "sa_outbox.monitoring",
        "Health, metrics, traces and errors in Sentry.",
        "monitoring.md",
        (
            "sa_outbox.monitoring",
            "sa_outbox.monitoring.prometheus",
            "sa_outbox.monitoring.sentry",
            "sa_outbox.monitoring.traces",
        ),
    ),
    Page(
        "dashboard.md",
        "sa_outbox.dashboard",
        "The dashboard as an ASGI application.",
        "dashboard.md",
        ("sa_outbox.dashboard",),
    ),
    Page(
        "embedded.md",
        "sa_outbox.embedded",
        "A PostgreSQL for demos, tests and development.",
        "embedded.md",
        ("sa_outbox.embedded",),
    ),
)
