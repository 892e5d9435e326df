"""What a consumer tells, as numbers; and those numbers as Prometheus reads them."""

from __future__ import annotations

import builtins
import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sa_outbox import Event, Outbox, event_type, observe
from sa_outbox.errors import ConfigError
from sa_outbox.monitoring import Metrics, prometheus
from sa_outbox.monitoring.families import BUCKETS, FAMILIES
from sa_outbox.monitoring.metrics import MAX_ERRORS
from sa_outbox.observe import Observation, Place
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
    event_type: str = "order.placed",
    outcome: observe.Settled = "done",
    *seconds: float,
    attempt: int = 1,
) -> Observation:
    group = observe.SettledGroup(event_type, attempt, outcome, list(seconds or (0.002,)))
    return observe.BatchSettled("billing", (group,))


def failed(error: str) -> Observation:
    failure = Failure(1, SECRET, error, SECRET)
    return observe.AttemptFailed("billing", uuid4(), "order.placed", 7, 1, failure, 1.0)


EVERYTHING: list[Observation] = [
    observe.EventsAdded({"order.placed": 2}),
    observe.RangeTaken("mailing", 1, 3, after_crash=False),
    observe.ConsumerStarted("host:1:a", ("billing",)),
    observe.ListenerOrphaned("old", 3),
    observe.LeaseClaimed("billing", 1, 0, after_crash=False),
    observe.LeasesKept(("billing",), 2),
    observe.LeaseDropped("billing", 1),
    observe.Notified("events"),
    observe.Woken("notify"),
    observe.HorizonRead(10, 8, 1, 0.003),
    observe.BatchRead("billing", 5, 10),
    failed("ValueError"),
    observe.DeadLettered("billing", uuid4(), "order.placed", 7, 1, "attempts"),
    observe.SuspectAttempted("billing", uuid4(), "order.placed", 7, 1, 1),
    observe.Ticked("nightly", None, 0),  # type: ignore[arg-type]  # the time is not looked at
    observe.DatabaseAway(Place("horizon"), SECRET, 1.0),
    observe.RelayAway("billing", SECRET, 1.0),
    observe.LoopBlocked(6.0, SECRET),
    observe.HandlerIgnoredCancel("billing", uuid4(), "order.placed", 7, 1, 1.0),
    observe.PartitionDropped("outbox_p0", 1, 1000),
    observe.RowsPurged("outbox_audit", 3),
    observe.BacklogMeasured("billing", 5, 1.5, 1, 2, 3, 4, 1, paused=False),
    settled(),
]


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"sa_outbox_{name}", labels)


def samples(registry: CollectorRegistry, name: str) -> list[dict[str, str]]:
    """The labels of each sample of a metric."""
    return [
        sample.labels
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"sa_outbox_{name}"
    ]


class TestCounting:
    def test_an_attempt_is_counted_by_listener_type_and_outcome(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        metrics(settled("order.placed", "done", 0.1, 0.2))
        metrics(settled("order.placed", "retry"))

        of = {"listener": "billing", "event_type": "order.placed"}
        assert value(registry, "deliveries_settled_total", **of, outcome="done") == 2
        assert value(registry, "deliveries_settled_total", **of, outcome="retry") == 1

    def test_durations_fall_into_the_buckets_at_or_above_them(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        metrics(settled("order.placed", "done", 0.0, BUCKETS[0]))
        metrics(settled("order.placed", "retry", BUCKETS[0] * 1.1, 1000.0))
        metrics(settled("order.paid", "done", 7.0))

        of = {"listener": "billing", "event_type": "order.placed"}

        def below(bound: str) -> float | None:
            return value(registry, "handler_seconds_bucket", **of, le=bound)

        assert [below(str(each)) for each in BUCKETS[:2]] == [2, 3]
        assert [below(str(BUCKETS[-1])), below("+Inf")] == [3, 4]
        assert value(registry, "handler_seconds_count", **of) == 4
        total = value(registry, "handler_seconds_sum", **of)
        assert total == pytest.approx(1000.0 + BUCKETS[0] * 2.1)

    def test_a_delivery_that_has_ended_shows_how_many_attempts_it_took(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        metrics(settled("order.placed", "done", 0.1, 0.1))
        metrics(settled("order.placed", "retry", attempt=2))
        metrics(settled("order.placed", "done", attempt=3))
        metrics(settled("order.placed", "cancelled", attempt=4))
        metrics(settled("order.placed", "dead", attempt=30))

        def below(bound: str) -> float | None:
            return value(registry, "delivery_attempts_bucket", listener="billing", le=bound)

        assert [below(each) for each in ("1.0", "2.0", "3.0", "25.0", "+Inf")] == [2, 2, 3, 3, 4]
        assert value(registry, "delivery_attempts_sum", listener="billing") == 1 + 1 + 3 + 30

    def test_failed_attempts_are_counted_by_class_of_error_up_to_a_limit(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        for number in range(2 * MAX_ERRORS):
            metrics(failed(f"shop.Error{number}"))
            metrics(failed("shop.Error0"))

        of = {"listener": "billing"}
        assert value(registry, "attempts_failed_total", **of) == 4 * MAX_ERRORS
        assert value(registry, "attempt_errors_total", **of, error="shop.Error0") == (
            2 * MAX_ERRORS + 1
        )
        assert value(registry, "attempt_errors_total", **of, error="other") == MAX_ERRORS
        assert len(samples(registry, "attempt_errors_total")) == MAX_ERRORS + 1

    def test_a_queue_counts_the_deliveries_of_the_ranges_that_it_claims(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        for number, events in ((1, 250), (2, 7)):
            metrics(observe.RangeTaken("mailing", number, events, after_crash=False))

        assert value(registry, "deliveries_claimed_total", listener="mailing") == 257
        assert value(registry, "leases_claimed_total", listener="mailing") == 2

    def test_added_events_are_counted_by_type_and_the_queue_of_their_category(self) -> None:
        outbox = Outbox(notify="off", categories={"mail.*": "notification"})
        metrics = Metrics(outbox)
        registry = prometheus.register(metrics)
        metrics(observe.EventsAdded({"order.placed": 2, "mail.wanted": 1}))
        metrics(observe.EventsAdded({"order.placed": 1}))

        def added(event_type: str, queue: str) -> float | None:
            return value(registry, "events_added_total", event_type=event_type, queue=queue)

        assert added("order.placed", "default") == 3
        assert added("mail.wanted", "notifications") == 1

    def test_what_two_threads_add_at_once_is_counted_twice(
        self, metrics: Metrics, registry: CollectorRegistry
    ) -> None:
        """Without a lock both would read the number before either writes it."""
        reading = Barrier(2)

        class Slow(dict[tuple[str, ...], float]):
            def get(self, *given: Any) -> Any:
                value = super().get(*given)
                with suppress(BrokenBarrierError):  # nobody else reads: so it should be
                    reading.wait(0.05)
                return value

        metrics._numbers["sa_outbox_events_added"] = Slow()
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                pool.submit(metrics, observe.EventsAdded({"order.placed": 1}))

        of = {"event_type": "order.placed", "queue": "default"}
        assert value(registry, "events_added_total", **of) == 2

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


class TestEventTypes:
    def shown(self, metrics: Metrics) -> set[str]:
        found = samples(prometheus.register(metrics), "deliveries_settled_total")
        return {each["event_type"] for each in found}

    def test_a_type_is_shown_without_being_declared(self, metrics: Metrics) -> None:
        metrics(settled("order.parted"))
        metrics(settled("outbox.dead_lettered"))

        assert self.shown(metrics) == {"order.parted", "outbox.dead_lettered"}

    def test_after_the_limit_a_type_is_other_unless_the_program_declares_it(self) -> None:
        outbox = Outbox(notify="off")

        @outbox.listener("billing", on=["order.placed", "order.p*"])
        async def bill(event: Event[Any]) -> None: ...

        metrics = Metrics(outbox, max_event_types=3)
        for number in range(1000):
            metrics(settled(f"order.p{number}"))
        metrics(settled("order.placed"))
        metrics(settled("metrics.declared"))

        first = {"order.p0", "order.p1", "order.p2"}
        assert self.shown(metrics) == {*first, "other", "order.placed", "metrics.declared"}

    @pytest.mark.parametrize("name", [HOSTILE, "x" * 1000, "", "order.*"])
    def test_what_is_no_event_type_is_other_and_takes_no_place(self, name: str) -> None:
        metrics = Metrics(Outbox(notify="off"), max_event_types=1)
        metrics(settled(name))
        metrics(settled("order.placed"))

        assert self.shown(metrics) == {"other", "order.placed"}

    @pytest.mark.parametrize("limit", [-1, 1.5, True, "many"])
    def test_a_limit_that_is_no_number_is_refused(self, limit: Any) -> None:
        with pytest.raises(ConfigError, match="max_event_types"):
            Metrics(Outbox(notify="off"), max_event_types=limit)


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

    def test_no_label_is_for_a_key_a_tenant_or_an_id(self) -> None:
        allowed = {
            *("listener", "event_type", "outcome", "reason", "of", "by", "cron", "state", "table"),
            *("error", "queue"),
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
