"""The relay to Kafka, against librdkafka's mock cluster."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import CorruptRecordException

from sa_outbox import Event
from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable
from sa_outbox.relay import Answer, CloudEvents, Message, Plain
from sa_outbox.relay.conformance import Arrived, RelayConformance
from sa_outbox.relay.kafka import Kafka, link
from sa_outbox.relay.kafka.link import partition_of
from tests.support import PATIENCE, comes_true, kafka
from tests.support.kafka import Cluster

pytestmark = pytest.mark.anyio


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with kafka.cluster() as made:
        made.create("orders", 3)
        yield made


@pytest.fixture
async def relay(cluster: Cluster) -> AsyncIterator[Kafka]:
    """Whatever a test does with it: closed, it leaves nothing running."""
    made = Kafka(cluster.addresses, unknown_after=timedelta(seconds=0.5))
    yield made
    with anyio.fail_after(PATIENCE):
        await made.close()
    await comes_true(lambda: running() == [])


def running() -> list[str]:
    """Tasks of aiokafka."""
    coroutines: list[Any] = [task.get_coro() for task in asyncio.all_tasks()]
    return [repr(each) for each in coroutines if "aiokafka" in each.cr_code.co_filename]


def messages(*keys: str | None, to: str = "orders", size: int = 0) -> list[Message]:
    """Numbered from 0."""
    made = []
    for number, key in enumerate(keys):
        event: Event[Any] = Event("order.placed", {"n": number, "x": "x" * size}, key=key)
        made.append(Plain().wrap(event, to, epoch=1, prefix="ce_"))
    return made


def ids(found: list[Message]) -> list[str]:
    return [str(each.event.event_id) for each in found]


def there(cluster: Cluster, name: str = "orders") -> list[str]:
    """``event_id`` of all that arrived, partition by partition."""
    return [dict(each.headers())["event_id"].decode() for each in cluster.read(name)]


def kinds(answers: Any) -> list[str | None]:
    return [None if each is None else type(each).__name__ for each in answers]


class TestConformance(RelayConformance):
    time_limit = 10.0
    ill_formed = ("", ".", "two words", "new\nline", "n" * 250, "ü")
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: Cluster) -> None:
        self._brokers, self._count = cluster, 0

    def make_relay(self) -> Kafka:
        return Kafka(self._brokers.addresses)

    def make_relay_to(self, host: str, port: int) -> Kafka:
        return Kafka(
            f"{host}:{port}",
            request_timeout=timedelta(seconds=1),
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="me",
            sasl_plain_password=self.secret,
        )

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, body=b"x" * 2_000_000)

    async def new_destination(self) -> str:
        self._count += 1
        return self._brokers.create(f"d{self._count}")

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        return [as_arrived(each) for each in self._brokers.read(destination)]


def as_arrived(found: Any) -> Arrived:
    headers = {name: value.decode() for name, value in found.headers()}
    key = None if found.key() is None else found.key().decode()
    return Arrived(headers["event_id"], found.value(), key, headers)


class TestRecords:
    async def test_a_record_has_key_value_headers_and_its_partition(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        event: Event[Any] = Event(
            "order.placed", {"n": 1}, key="ключ", headers={"note": "ą🐘", "Content-Type": "mine"}
        )
        message = CloudEvents("/shop").wrap(event, "orders", epoch=1, prefix=relay.attribute_prefix)

        assert await relay.send([message]) == [None]

        (found,) = cluster.read("orders")
        assert found.key() == "ключ".encode()
        assert found.value() == b'{"n":1}'
        assert found.partition() == partition_of("ключ".encode(), [0, 1, 2])
        headers = dict(found.headers())
        assert headers["ce_id"] == str(event.event_id).encode()
        assert headers["note"] == "ą🐘".encode()
        assert headers["content-type"] == b"application/json"
        assert "Content-Type" not in headers

    async def test_without_a_key_a_batch_has_one_partition(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        assert await relay.send(messages(*[None] * 20)) == [None] * 20

        found = cluster.read("orders")
        assert len(found) == 20
        assert len({each.partition() for each in found}) == 1
        assert all(each.key() is None for each in found)

    async def test_what_is_too_large_is_a_dead_letter_and_not_sent(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        small, large, later = messages("a"), messages("a", size=1_000_000), messages("a")

        answers = await relay.send([*small, *large, *later])

        assert kinds(answers) == [None, "Undeliverable", None]
        assert there(cluster) == ids([*small, *later])

    @pytest.mark.parametrize(
        "wrong", [{"key": "\ud800"}, {"body": "text"}, {"headers": {"a": 1}}, {"key": 7}]
    )
    async def test_what_a_map_made_wrong_is_a_dead_letter(
        self, relay: Kafka, cluster: Cluster, wrong: dict[str, Any]
    ) -> None:
        good, bad = messages("a", "b")
        bad = replace(bad, **wrong)

        _, answer = await relay.send([good, bad])

        assert isinstance(answer, Undeliverable)
        assert answer.kind == "serialization"
        assert there(cluster) == ids([good])


class TestAnswersOfBrokers:
    @pytest.mark.parametrize(
        "error",
        [
            kafka.NOT_LEADER,
            kafka.TIMED_OUT,
            kafka.FEW_REPLICAS,
            kafka.FEW_REPLICAS_AFTER_APPEND,
            kafka.NETWORK,
        ],
    )
    async def test_what_passes_is_waited_for(
        self, relay: Kafka, cluster: Cluster, error: int
    ) -> None:
        sent = messages(*"abcabc")
        cluster.fail_next(kafka.PRODUCE, error, error)

        assert await relay.send(sent) == [None] * 6
        assert set(there(cluster)) == set(ids(sent))

    async def test_a_record_that_the_broker_knows_already_is_there(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        cluster.fail_next(kafka.PRODUCE, kafka.DUPLICATE_SEQUENCE)

        assert await relay.send(messages("a")) == [None]

    async def test_of_a_batch_that_is_too_large_it_is_found_out_which_one(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        sent = messages(*["a"] * 8)
        cluster.fail_next(kafka.PRODUCE, *[kafka.TOO_LARGE] * 4)  # of 8, of 4, of 2, of 1

        answers = await relay.send(sent)

        assert kinds(answers) == ["Undeliverable", *[None] * 7]
        assert there(cluster) == ids(sent[1:])

    async def test_an_error_of_no_known_kind_is_the_message_s_own(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        sent = messages(*["a"] * 4)
        cluster.fail_next(kafka.PRODUCE, *[kafka.CORRUPT] * 3)  # of 4, of 2, of 1

        answers = await relay.send(sent)

        assert isinstance(answers[0], CorruptRecordException)
        assert kinds(answers[1:]) == ["RelayUnavailable"] * 3, "not sent, and nothing is counted"
        assert there(cluster) == []

    async def test_a_producer_that_is_out_of_step_is_replaced(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        cluster.fail_next(kafka.PRODUCE, kafka.OUT_OF_ORDER)
        (answer,) = await relay.send(messages("a"))

        assert isinstance(answer, RelayUnavailable)
        assert type(answer.__cause__).__name__ == "OutOfOrderSequenceNumber"
        sent = messages("a", "b")
        assert await relay.send(sent) == [None, None]
        assert set(there(cluster)) == set(ids(sent))

    async def test_an_unknown_destination_is_one_after_a_while(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        cluster.create("gone")
        cluster.fail_destination("gone", kafka.UNKNOWN)
        good = messages("a")

        answers = await relay.send([*messages("a", "b", to="gone"), *good])

        assert kinds(answers) == ["Undeliverable", "Undeliverable", None]
        assert {each.kind for each in answers[:2]} == {"unknown-destination"}  # type: ignore[union-attr]
        cluster.fail_destination("gone", 0)
        assert await relay.send(messages("a", to="gone")) == [None], "created meanwhile"

    async def test_a_destination_that_is_not_allowed_is_refused(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        cluster.create("secret")
        cluster.fail_destination("secret", kafka.NOT_ALLOWED)

        (answer,) = await relay.send(messages("a", to="secret"))

        assert isinstance(answer, Undeliverable)
        assert answer.kind == "refused"


class TestOrder:
    async def test_after_a_failure_nothing_of_its_partition_arrives(self, cluster: Cluster) -> None:
        """Many record batches of one partition, and the second one fails for good."""
        cluster.create("narrow", 1)
        relay = Kafka(cluster.addresses, max_batch_bytes=1024)
        await relay.send(messages("a", to="narrow"))
        sent = messages(*"abcdefghijkl", to="narrow", size=300)
        first = await relay.send(sent[:1])
        cluster.fail_next(kafka.PRODUCE, 0, kafka.OUT_OF_ORDER)

        answers = await relay.send(sent[1:])
        await relay.close()

        done = [each is None for each in [*first, *answers]]
        assert True in done[1:]
        assert False in done
        assert done == sorted(done, reverse=True), "up to the failure, and no further"
        assert there(cluster, "narrow")[1:] == ids(sent)[: sum(done)]

    async def test_aiokafka_alone_goes_on_after_a_failure(self, cluster: Cluster) -> None:
        """Why this relay gives it one record batch after the other."""
        cluster.create("narrow", 1)
        alone = AIOKafkaProducer(
            bootstrap_servers=cluster.addresses, enable_idempotence=True, max_batch_size=1024
        )
        await alone.start()
        cluster.fail_next(kafka.PRODUCE, kafka.OUT_OF_ORDER)
        sent = messages(*"abcdefghijkl", to="narrow", size=300)
        futures = []
        for each in sent:
            headers = [(name, value.encode()) for name, value in each.headers.items()]
            futures.append(await alone.send("narrow", each.body, key=b"a", headers=headers))
        answers = await asyncio.gather(*futures, return_exceptions=True)
        await alone.stop()

        assert isinstance(answers[0], Exception)
        assert ids(sent)[-1] in there(cluster, "narrow")

    async def test_a_key_in_two_destinations_waits_for_its_first(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        cluster.create("paid")
        placed, paid = messages("a"), messages("a", to="paid")
        await relay.send(messages("a", "b", "c"))
        cluster.fail_next(kafka.PRODUCE, kafka.OUT_OF_ORDER)

        answers = await relay.send([*placed, *paid])

        assert kinds(answers) == ["RelayUnavailable"] * 2
        assert there(cluster, "paid") == []

    async def test_one_that_is_cancelled_takes_no_answer_from_another(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        await relay.send(messages("a"))
        cluster.slow(300)
        sent = messages("b", "c")
        answers: list[Answer] = []

        async def other() -> None:
            answers.extend(await relay.send(sent))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                with anyio.move_on_after(0.05):
                    await relay.send(messages("d"))
        cluster.slow(0)

        assert kinds(answers) in ([None, None], ["RelayUnavailable"] * 2)
        assert await relay.send(sent) == [None, None]

    async def test_one_that_is_cancelled_leaves_nothing_of_the_others_running(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        for step in range(0, 40, 3):
            assert await relay.send(messages("a")) == [None]
            cluster.slow(100)  # the other brokers are just being connected to
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(relay.send, messages("b", "c"))
                tasks.start_soon(relay.send, messages("e", "f", "g"))
                with anyio.move_on_after(step / 1000):
                    await relay.send(messages("d", "x", "y"))
            await relay.close()
            await comes_true(lambda: running() == [], within=5)
            cluster.slow(0)


class TestOutages:
    async def test_while_nobody_is_there_it_says_so_at_once(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        cluster.down()
        with anyio.fail_after(PATIENCE):
            (answer,) = await relay.send(messages("a"))
        assert isinstance(answer, RelayUnavailable)

        cluster.up()
        assert await relay.send(messages("a")) == [None]

    async def test_a_short_one_is_waited_for(
        self, relay: Kafka, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        await relay.send(messages("a"))
        cluster.down()
        answers: list[Answer] = []
        sent = messages(*"abc")

        async def send() -> None:
            answers.extend(await relay.send(sent))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                # Not until all tasks are blocked: aiokafka tries again as often as anyio looks.
                await comes_true(lambda: "NodeNotReadyError" in caplog.text)
                assert answers == []
                cluster.up()

        assert answers == [None] * 3
        assert set(ids(sent)) <= set(there(cluster))

    async def test_a_long_one_ends_after_the_delivery_timeout(self, cluster: Cluster) -> None:
        relay = Kafka(cluster.addresses, delivery_timeout=timedelta(seconds=0.5))
        await relay.send(messages("a"))
        cluster.down()

        answers = await relay.send(messages(*"abc"))

        assert kinds(answers) == ["RelayUnavailable"] * 3
        assert running() == [], "nothing goes on in the background"
        cluster.up()
        assert there(cluster) == there(cluster)[:1], "nor arrives later"
        await relay.close()

    async def test_brokers_that_do_not_say_where_a_destination_is_are_away(
        self, relay: Kafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By itself aiokafka would wait for their answer without end."""
        monkeypatch.setattr(link, "CLOSE_SECONDS", 0.5)
        cluster.create("unseen")
        await relay.send(messages("a"))
        cluster.slow(60_000)

        with anyio.fail_after(5):
            (answer,) = await relay.send(messages("b", to="unseen"))
        assert isinstance(answer, RelayUnavailable)

        cluster.slow(0)
        assert await relay.send(messages("b", to="unseen")) == [None]

    async def test_a_producer_that_learns_of_no_destination_any_more_is_replaced(
        self, relay: Kafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """aiokafka's task that asks for metadata has ended: nobody starts another."""
        monkeypatch.setattr(link, "CLOSE_SECONDS", 0.5)
        cluster.create("unseen")
        await relay.send(messages("a"))
        assert relay._link is not None
        relay._link._producer.client._sync_task.cancel()

        (answer,) = await relay.send(messages("b", to="unseen"))
        assert isinstance(answer, RelayUnavailable)
        assert await relay.send(messages("b", to="unseen")) == [None]

    async def test_cancelled_at_any_step_it_leaves_nothing_running(
        self, relay: Kafka, cluster: Cluster
    ) -> None:
        for steps in range(0, 60, 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(relay.send, messages("a", "b"))
                for _ in range(steps):
                    await anyio.sleep(0)
                if steps % 2:
                    cluster.down()
                tasks.cancel_scope.cancel()
            cluster.up()
            if relay._link is not None and relay._link.over:
                assert running() == []
        sent = messages("a")
        assert await relay.send(sent) == [None]

    async def test_the_log_is_quiet(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster.down()
        relay = Kafka(cluster.addresses)
        for _ in range(30):
            await relay.send(messages("a"))
        quiet = len(caplog.records)
        await relay.close()
        assert 1 <= quiet <= 5
        theirs = [each for each in logging.root.manager.loggerDict if each.startswith("aiokafka")]
        assert theirs
        assert not any(logging.getLogger(each).filters for each in theirs)

        loud = Kafka(cluster.addresses, quiet=False)
        for _ in range(30):
            await loud.send(messages("a"))
        await loud.close()
        assert len(caplog.records) - quiet >= 30


class TestMaking:
    @pytest.mark.parametrize("name", ["orders", "a.b_c-1", "x" * 249, "..."])
    def test_a_destination_is_a_topic_s_name(self, name: str) -> None:
        Kafka("127.0.0.1:9").check_destination(name)

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250, "a\n"])
    def test_what_is_none_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="invalid Kafka topic"):
            Kafka("127.0.0.1:9").check_destination(name)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"acks": 1}, "acks is set by the relay"),
            ({"enable_idempotence": False}, "set by the relay"),
            ({"transactional_id": "x"}, "set by the relay"),
            ({"sasl_password": "x"}, "no|neither.*'sasl_password'"),
            ({"max_batch_bytes": 3}, "max_batch_bytes"),
            ({"max_message_bytes": "many"}, "max_message_bytes"),
            ({"request_timeout": 3}, "request_timeout must be a timedelta"),
            ({"unknown_after": timedelta(0)}, "above zero"),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            Kafka("127.0.0.1:9", **options)

    @pytest.mark.parametrize("servers", ["", [], [""]])
    def test_it_needs_an_address(self, servers: Any) -> None:
        with pytest.raises(ConfigError, match="address"):
            Kafka(servers)

    async def test_what_aiokafka_refuses_later_is_no_dead_letter(self) -> None:
        relay = Kafka("127.0.0.1:9", security_protocol="SASL_SSL")
        (answer,) = await relay.send(messages("a"))
        await relay.close()

        assert isinstance(answer, RelayUnavailable)

    def test_without_the_extra_it_says_how_to_get_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [each for each in sys.modules if each.startswith("sa_outbox.relay.kafka.")]:
            monkeypatch.delitem(sys.modules, name)
        import sa_outbox.relay.kafka as package  # noqa: PLC0415 - as it is now

        for name in ("records", "link", "faults"):
            monkeypatch.delattr(package, name, raising=False)
        monkeypatch.setitem(sys.modules, "aiokafka", None)

        with pytest.raises(ConfigError, match=r'pip install "sa_outbox\[kafka\]"'):
            Kafka("127.0.0.1:9")
