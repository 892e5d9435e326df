"""Everything on this machine, until Ctrl-C: two databases, a Kafka in memory, both services."""

from __future__ import annotations

import os
import subprocess
import sys

from confluent_kafka import Producer
from honcho.manager import Manager

from sa_outbox.embedded import EmbeddedPostgres

PYTHON = f"exec {sys.executable} -m"
CONSUME = "sa_outbox.consume --log-format console"


def main() -> int:
    # librdkafka has brokers for tests: they speak the protocol, and keep everything in memory.
    kafka = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = [f"{each.host}:{each.port}" for each in kafka.list_topics().brokers.values()]
    with EmbeddedPostgres() as server:
        orders, shipping = server.create_database("orders"), server.create_database("shipping")
        environment = {
            **os.environ,
            "ORDERS_DATABASE_URL": orders,
            "SHIPPING_DATABASE_URL": shipping,
            "KAFKA": ",".join(brokers),
            "PYTHONUNBUFFERED": "1",
        }
        processes = Manager()
        for name, database, command in (
            ("orders", orders, "uvicorn orders.app:app --port 8000"),
            ("relay", orders, f"{CONSUME} orders.app:outbox --monitor-port 9100"),
            ("receive", shipping, "shipping.receive"),
            (
                "shipping",
                shipping,
                f"{CONSUME} shipping.listeners:outbox --monitor-port 9200",
            ),
        ):
            there = {**environment, "DATABASE_URL": database}
            migrate = [sys.executable, "-m", "sa_outbox", "migrate"]
            subprocess.run(migrate, env=there, check=True, stdout=subprocess.DEVNULL)
            processes.add_process(name, f"{PYTHON} {command}", env=there)
        print(f"for the commands of sa-outbox:\nexport DATABASE_URL={orders}", flush=True)
        processes.loop()
    return int(processes.returncode or 0)


if __name__ == "__main__":
    sys.exit(main())
