"""What a consumer tells, as numbers; and those numbers as Prometheus reads them."""

from __future__ import annotations

import builtins
import importlib
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sa_outbox import Event, Outbox, event_type, observe
from sa_outbox.errors import ConfigError
from sa_outbox.monitoring import Metrics, prometheus
from sa_outbox.monitoring.families import BUCKETS, FAMILIES
from sa_outbox.observe import Observation
from sa_outbox.policy.failure import Failure

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
SECRET = "4111-1111-1111-1111"
HOSTILE = 'order\n"placed"} 1\nsa_outbox_made_up 1'


@event_type("metrics.declared")
class Declared: ...


@pytest.fixture
def metrics() -> Metrics:
    outbox = Outbox(notify="off")

    @outbox.listener("billing", on=["order.placed", "order.p*"])
    async def bill(event: Event[Any]) -> None: ...

    return Metrics(outbox)


@pytest.fixture
def registry(metrics: Metrics) -> CollectorRegistry:
    return prometheus.register(metrics)


def settled(
    event_type: str = "order.placed", outcome: str = "done", seconds: float = 0.002
) -> Observation:
    return observe.DeliverySettled("billing", uuid4(), event_type, 7, 1, outcome, seconds)  # type: ignore[arg-type]


EVERYTHING: list[Observation] = [
    observe.ConsumerStarted("host:1:a", ("billing",)),
    observe.ListenerOrphaned("old", 3),
    observe.LeaseClaimed("billing", 1, 0, after_crash=False),
    observe.LeasesKept(("billing",), 2),
    observe.LeaseDropped("billing", 1),
    observe.Notified("events"),
    observe.Woken("notify"),
    observe.HorizonRead(10, 8, 1, 0.003),
    observe.BatchRead("billing", 5, 10),
    observe.AttemptFailed(
        "billing", uuid4(), "order.placed", 7, 1, Failure(1, SECRET, "ValueError", SECRET), 1.0
    ),
    observe.DeadLettered("billing", uuid4(), "order.placed", 7, 1, "attempts"),
    observe.SuspectAttempted("billing", 7, 1),
    observe.Ticked("nightly", None, 0),  # type: ignore[arg-type]  # the time is not looked at
    observe.DatabaseAway("horizon", SECRET, 1.0),
    observe.RelayAway("billing", SECRET, 1.0),
    observe.LoopBlocked(6.0, SECRET),
    observe.HandlerIgnoredCancel("billing", 7, 1.0),
    observe.PartitionDropped("outbox_p0", 1, 1000),
    observe.RowsPurged("outbox_audit", 3),
    observe.BacklogMeasured("billing", 5, 1.5, 1, 2, 3, 4, 1, paused=False),
    settled(),
]


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"sa_outbox_{name}", labels)


class TestCounting:
    def test_an_attempt_is_counted_by_listener_type_and_outcome(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        for outcome in ("done", "done", "retry"):
            metrics(settled(outcome=outcome))

        of = {"listener": "billing", "event_type": "order.placed"}
        assert value(registry, "deliveries_settled_total", **of, outcome="done") == 2
        assert value(registry, "deliveries_settled_total", **of, outcome="retry") == 1

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("order.placed", "order.placed"),
            ("metrics.declared", "metrics.declared"),
            ("order.parted", "other"),  # a pattern matches it, and so any number of others
            (HOSTILE, "other"),
        ],
    )
    def test_a_type_is_a_label_only_if_the_program_declares_it(
        self, metrics: Metrics, registry: CollectorRegistry, name: str, shown: str
    ) -> None:
        metrics(settled(name))

        of = {"listener": "billing", "event_type": shown, "outcome": "done"}
        assert value(registry, "deliveries_settled_total", **of) == 1

    def test_durations_fall_into_the_buckets_at_or_above_them(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        for seconds in (0.0, BUCKETS[0], BUCKETS[0] * 1.1, 1000.0):
            metrics(settled(seconds=seconds))

        def below(bound: str) -> float | None:
            return value(registry, "handler_seconds_bucket", listener="billing", le=bound)

        assert [below(str(each)) for each in BUCKETS[:2]] == [2, 3]
        assert [below(str(BUCKETS[-1])), below("+Inf")] == [3, 4]
        assert value(registry, "handler_seconds_count", listener="billing") == 4
        total = value(registry, "handler_seconds_sum", listener="billing")
        assert total == pytest.approx(1000.0 + BUCKETS[0] * 2.1)

    def test_every_family_has_a_sample_when_everything_has_happened(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        for each in EVERYTHING:
            metrics(each)

        shown = {each.name: each for each in registry.collect() if each.samples}
        assert shown.keys() == {each.name for each in FAMILIES}

    def test_what_happens_seldom_is_zero_before_it_does(self, registry: CollectorRegistry) -> None:
        assert value(registry, "loop_blocked_total") == 0
        assert value(registry, "consumer_running") == 0

    def test_the_leases_held_are_those_of_the_last_renewal(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        metrics(observe.ConsumerStarted("host:1:a", ("billing", "mailing")))
        metrics(observe.LeasesKept(("billing", "billing"), 3))
        assert value(registry, "leases_held", listener="billing") == 2
        assert value(registry, "leases_held", listener="mailing") == 0
        assert value(registry, "ranges_held") == 3

        metrics(observe.ConsumerStopped("host:1:a"))
        assert value(registry, "leases_held", listener="billing") == 0
        assert value(registry, "consumer_running") == 0

    def test_the_age_of_the_horizon_is_that_of_its_standing_still(
        self, metrics: Metrics, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = 100.0
        monkeypatch.setattr("sa_outbox.monitoring.metrics.monotonic", lambda: clock)

        def age_after(seconds: float, ceiling: int, final: int) -> float | None:
            nonlocal clock
            clock += seconds
            metrics(observe.HorizonRead(ceiling, final, 1))
            return value(registry, "horizon_age_seconds")

        assert age_after(1, 10, 10) == 0
        assert age_after(1, 12, 10) == 0
        assert age_after(5, 15, 10) == 5
        assert age_after(5, 20, 15) == 0, "it moved: another one holds it now"
        assert age_after(5, 20, 20) == 0


class TestShowing:
    def test_what_is_rendered_can_be_read_and_holds_nothing_of_the_events(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        for each in (*EVERYTHING, settled(HOSTILE)):
            metrics(each)

        kind, body = prometheus.rendered(registry)

        text = body.decode()
        assert kind.startswith("text/plain")
        names = {each.name for each in text_string_to_metric_families(text)}
        assert names == {each.name for each in FAMILIES}
        assert SECRET not in text
        assert "made_up" not in text

    def test_labels_have_few_values(self, metrics: Metrics, registry: CollectorRegistry) -> None:
        for number in range(1000):
            metrics(settled(f"order.p{number}"))

        samples = [
            sample
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "sa_outbox_deliveries_settled_total"
        ]
        assert len(samples) == 1
        allowed = {
            "listener",
            "event_type",
            "outcome",
            "reason",
            "of",
            "by",
            "cron",
            "state",
            "table",
        }
        assert {label for each in FAMILIES for label in each.labels} <= allowed

    def test_a_registry_of_the_program_shows_them_too(self, metrics: Metrics) -> None:
        given = CollectorRegistry()

        assert prometheus.register(metrics, given) is given
        assert value(given, "consumer_running") == 0

    def test_without_the_library_the_extra_is_named(
        self, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(name: str) -> object:
            raise ImportError(name)

        monkeypatch.setattr(prometheus, "import_module", refuse)

        with pytest.raises(ConfigError, match=r"sa_outbox\[prometheus\]"):
            prometheus.register(metrics)

    def test_the_library_is_loaded_only_on_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def refusing(name: str, *args: object, **options: object) -> object:
            assert not name.startswith(("prometheus_client", "opentelemetry")), name
            return real(name, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(builtins, "__import__", refusing)
        importlib.reload(prometheus)


class TestPage:
    def test_every_metric_is_on_its_page_with_its_kind_and_labels(self) -> None:
        row = re.compile(r"^\| `(sa_outbox_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
        told = {
            name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
            for name, kind, labels in row.findall(PAGE.read_text())
        }

        assert told == {
            each.name + ("_total" if each.kind == "counter" else ""): (each.kind, each.labels)
            for each in FAMILIES
        }
