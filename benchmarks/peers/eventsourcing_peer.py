"""eventsourcing: a recorder's notification log, in pages of 500 with one tracking row per page.

The library's own projections write a tracking row per event, which is slower; a page at a time is
the fastest its public classes allow. Latency is measured through its subscription.
"""

# mypy: ignore-errors
import asyncio
import json
import uuid
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from contest import DSN, PAYLOAD, Peer, main
from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.postgres import (
    PostgresApplicationRecorder,
    PostgresDatastore,
    PostgresTrackingRecorder,
)

PAGE, PORTION = 500, 10_000


class Eventsourcing(Peer):
    def opened(self):
        parts = urlsplit(DSN)
        store = PostgresDatastore(
            dbname=parts.path[1:],
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            password=parts.password,
            pool_size=2,
            max_overflow=4,
        )
        recorder = PostgresApplicationRecorder(store, events_table_name="stored_events")
        tracking = PostgresTrackingRecorder(store, tracking_table_name="tracking")
        return store, recorder, tracking

    def stored(self, payload):
        state = json.dumps(payload).encode()
        return StoredEvent(uuid.uuid4(), 1, "order.placed", state)

    async def prepare(self):
        store, recorder, tracking = self.opened()
        with store.transaction(commit=True) as cursor:
            cursor.execute("SELECT to_regclass('tracking') AS found")
            exists = cursor.fetchone()["found"]
        if not exists:
            recorder.create_table()
            tracking.create_table()
        with store.transaction(commit=True) as cursor:
            cursor.execute("TRUNCATE stored_events, tracking RESTART IDENTITY")

    async def fill(self, count):
        _, recorder, _ = self.opened()
        for start in range(0, count, PORTION):
            part = min(PORTION, count - start)
            recorder.insert_events([self.stored(PAYLOAD) for _ in range(part)])

    async def work(self, ready):
        await asyncio.to_thread(self.subscribe if self.noting else self.read, ready)

    def read(self, _ready):
        _, recorder, tracking = self.opened()
        position = 0
        while not self.finished.is_set():
            page = recorder.select_notifications(position, PAGE, inclusive_of_start=False)
            for each in page:
                self.saw(json.loads(each.state))
            position = page[-1].id
            tracking.insert_tracking(Tracking("orders", position))

    def subscribe(self, ready):
        _, recorder, tracking = self.opened()
        with recorder.subscribe(gt=None) as subscription:
            ready()
            for each in subscription:
                self.saw(json.loads(each.state))
                tracking.insert_tracking(Tracking("orders", each.id))
                if self.finished.is_set():
                    return

    @asynccontextmanager
    async def sender(self):
        _, recorder, _ = self.opened()

        async def send(payload):
            recorder.insert_events([self.stored(payload)])

        yield send


main(Eventsourcing)
