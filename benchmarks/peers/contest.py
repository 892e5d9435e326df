"""What each peer's program has in common. It runs in the peer's own environment: no import of ours.

Commands: ``prepare``, ``fill N``, ``drain N`` (prints the seconds from the first call of the
handler to the last), ``handle N`` (prints "ready", then when each handler began), ``send N`` (one
event at a time; prints when each commit had returned). Times are of one clock for the whole system.
"""

# mypy: ignore-errors
import asyncio
import json
import os
import random
import sys
import time

PAYLOAD = json.loads(os.environ["BENCH_PAYLOAD"])
DSN = os.environ["BENCH_DSN"]


class Peer:
    """A peer implements ``prepare``, ``fill``, ``work`` and ``sender``."""

    def __init__(self):
        self.expected = 0
        self.seen = 0
        self.began = {}
        self.first = self.last = 0.0
        self.noting = False
        self.finished = asyncio.Event()

    def saw(self, payload):
        """Called by the handler, at its beginning."""
        number = payload["order_id"]
        self.seen += 1
        if self.noting:
            self.began[number] = time.monotonic()
        elif self.seen == 1:
            self.first = time.monotonic()
        if self.seen == self.expected:
            self.last = time.monotonic()
            self.finished.set()

    async def drain(self, count):
        self.expected = count
        await self.work(lambda: None)
        print(json.dumps(self.last - self.first), flush=True)

    async def handle(self, count):
        self.expected, self.noting = count, True
        await self.work(lambda: print("ready", flush=True))
        print(json.dumps(self.began), flush=True)

    async def send(self, count):
        committed = {}
        async with self.sender() as send:
            for number in range(count):
                await asyncio.sleep(random.uniform(0.02, 0.06))
                await send({**PAYLOAD, "order_id": number})
                committed[number] = time.monotonic()
        print(json.dumps(committed), flush=True)

    async def until_finished(self, running):
        """Wait for the last event; an error of the peer ends it."""
        finished = asyncio.create_task(self.finished.wait())
        await asyncio.wait([running, finished], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        finished.cancel()


def main(peer, run=asyncio.run):
    command, *count = sys.argv[1:]

    async def whole():
        await getattr(peer(), command)(*map(int, count))

    run(whole())
    sys.stdout.flush()
    os._exit(0)  # whatever a peer left running
