"""A Kafka cluster inside the test: librdkafka's mock cluster, which speaks the real protocol.

It keeps what it is sent in memory, and can be told to fail. What it does not do: check sequence
numbers, replicate, or create a topic only when it is asked to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
"""Numbers of requests in the protocol."""
UNKNOWN_ERROR, CORRUPT, UNKNOWN, NOT_LEADER, TIMED_OUT = -1, 2, 3, 6, 7
TOO_LARGE, FEW_REPLICAS, FEW_REPLICAS_AFTER_APPEND, NOT_ALLOWED = 10, 19, 20, 29
OUT_OF_ORDER, DUPLICATE_SEQUENCE, OLD_EPOCH = 45, 46, 47
"""Numbers of errors."""
NETWORK = -195
"""librdkafka's own number: the connection ends and there is no answer."""
_PRODUCER = 0


def _library() -> Any:
    """The one that the wheel of confluent-kafka brings along; the extension has loaded it."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class Cluster:
    """Three brokers, numbered from 1."""

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = range(1, brokers + 1)
        self.partitions: dict[str, int] = {}
        self._library = _library()
        why = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(settings, b"log_level", b"0", why, len(why))
        self._client = ctypes.c_void_p(
            self._library.rd_kafka_new(_PRODUCER, settings, why, len(why))
        )
        assert self._client.value, why.value
        self._cluster = ctypes.c_void_p(
            self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        )
        assert self._cluster.value
        # Groups begin at once, and do not wait 3 s for further members.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        found: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.addresses = found.decode()

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def create(self, name: str, partitions: int = 3) -> str:
        self.partitions[name] = partitions
        self._ask("topic_create", name.encode(), partitions, min(3, len(self.brokers)))
        return name

    def fail_destination(self, name: str, error: int) -> None:
        """What brokers say about it when they are asked where it is. 0: nothing wrong."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), error)

    def fail_next(self, request: int, *errors: int) -> None:
        """The next requests of this kind, whichever broker gets them, are answered so."""
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster,
            ctypes.c_int16(request),
            ctypes.c_size_t(len(errors)),
            *(ctypes.c_int(each) for each in errors),
        )

    def forget_failures(self, request: int) -> None:
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    def down(self, *brokers: int) -> None:
        """These, or all: connections are cut and new ones refused."""
        for each in brokers or self.brokers:
            self._ask("broker_set_down", each)

    def up(self, *brokers: int) -> None:
        for each in brokers or self.brokers:
            self._ask("broker_set_up", each)

    def slow(self, milliseconds: int) -> None:
        """Answers come so much later: cut meanwhile, a request is done and nobody knows."""
        for each in self.brokers:
            self._ask("broker_set_rtt", each, milliseconds)

    def lead(self, name: str, partition: int, broker: int) -> None:
        """Another broker is the leader."""
        self._ask("partition_set_leader", name.encode(), partition, broker)

    def advertise(self, broker: int, host: str, port: int) -> None:
        """What clients are told as its address."""
        self._library.rd_kafka_mock_broker_set_host_port(self._cluster, broker, host.encode(), port)

    def read(self, name: str) -> list[Any]:
        """All that it holds, partition by partition."""
        settings = {
            "bootstrap.servers": self.addresses,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        reader = Consumer(settings)
        found: list[Any] = []
        try:
            partitions = self.partitions[name]
            reader.assign([TopicPartition(name, each, 0) for each in range(partitions)])
            while partitions:
                message = reader.poll(10)
                assert message is not None, "the cluster does not answer"
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    partitions -= 1
        finally:
            reader.close()
        return sorted(found, key=lambda each: (each.partition(), each.offset()))

    def _ask(self, what: str, *arguments: object) -> None:
        error = getattr(self._library, f"rd_kafka_mock_{what}")(self._cluster, *arguments)
        assert error == 0, f"{what} {arguments}: {error}"


@contextmanager
def cluster(brokers: int = 3) -> Iterator[Cluster]:
    made = Cluster(brokers)
    try:
        yield made
    finally:
        made.close()
