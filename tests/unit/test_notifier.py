"""When the notifier sends, with a sender that only takes notes."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox.producer import notifier as module
from sa_outbox.producer.notifier import INTERVAL_SECONDS, Notifier
from sa_outbox.producer.sender import Sender
from sa_outbox.sql.server.notify import notify


class NotingSender:
    """Stands in for Sender: notes each NOTIFY, fails or waits when told to."""

    made: ClassVar[list[NotingSender]] = []

    def __init__(self, engine: Engine) -> None:
        self.name = "noted"
        self.channels: list[str] = []
        self.attempts = 0
        self.failing = threading.Event()
        self.entered = threading.Event()
        self.may_return = threading.Event()
        self.may_return.set()
        self.closed = threading.Event()
        self.made.append(self)

    def send(self, engine: Engine, channel: str, limit: float) -> None:
        self.attempts += 1
        self.entered.set()
        assert self.may_return.wait(10)
        if self.failing.is_set():
            raise ConnectionRefusedError("no server")
        self.channels.append(channel)

    def close(self) -> None:
        self.closed.set()

    def explain(self, engine: Engine, error: Exception) -> str:
        return str(error)


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> list[NotingSender]:
    monkeypatch.setattr(module, "Sender", NotingSender)
    monkeypatch.setattr(NotingSender, "made", [])
    return NotingSender.made


@pytest.fixture
def notifier(senders: list[NotingSender]) -> Iterator[Notifier]:
    notifier = Notifier()
    yield notifier
    for each in senders:
        each.failing.clear()
        each.may_return.set()
    notifier.close(10)


@pytest.fixture
def engine() -> Engine:
    return create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")


def test_a_poke_leads_to_one_notify(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")

    assert notifier.settled(10)
    assert senders[0].channels == ["outbox"]


def test_a_poke_during_a_notify_leads_to_another(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    sender = senders[0]
    sender.entered.clear()
    sender.may_return.clear()
    notifier.poke(engine, "outbox")
    assert sender.entered.wait(10)

    notifier.poke(engine, "outbox")
    sender.may_return.set()

    assert notifier.settled(10)
    assert sender.channels == ["outbox"] * 3


def test_pokes_while_one_is_owed_are_merged(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    senders[0].may_return.clear()

    for _ in range(1000):
        notifier.poke(engine, "outbox")
    senders[0].may_return.set()

    assert notifier.settled(10)
    assert len(senders[0].channels) <= 3  # the first, the one that waited, what was owed behind it


def test_a_channel_gets_at_most_one_notify_per_interval(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    begin = time.monotonic()
    while time.monotonic() < begin + 10 * INTERVAL_SECONDS:
        notifier.poke(engine, "outbox")

    assert notifier.settled(10)
    assert 1 < len(senders[0].channels) <= (time.monotonic() - begin) / INTERVAL_SECONDS + 1


def test_pokes_of_many_threads_leave_nothing_owed(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    def poke_often() -> None:
        for _ in range(2000):
            notifier.poke(engine, "outbox")

    threads = [threading.Thread(target=poke_often) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert notifier.settled(10)
    sent = len(senders[0].channels)
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    assert len(senders[0].channels) == sent + 1


def test_first_pokes_of_many_threads_start_one_thread_and_one_sender(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    before = threading.active_count()
    ready = threading.Barrier(8)

    def poke() -> None:
        ready.wait()
        notifier.poke(engine, "outbox")

    threads = [threading.Thread(target=poke) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert notifier.settled(10)
    assert threading.active_count() == before + 1
    assert sum(bool(each.channels) for each in senders) == 1


def test_channels_are_owed_apart(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    notifier.poke(engine, "other")

    assert notifier.settled(10)
    assert sorted(senders[0].channels) == ["other", "outbox"]


def test_option_engines_share_the_sender_of_their_engine(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine.execution_options(isolation_level="SERIALIZABLE"), "outbox")
    gc.collect()
    engine.dispose()
    notifier.poke(engine, "outbox")

    assert notifier.settled(10)
    assert len(senders) == 1
    assert not senders[0].closed.is_set()


def test_another_database_than_postgresql_is_ignored(
    notifier: Notifier, senders: list[NotingSender]
) -> None:
    notifier.poke(create_engine("sqlite://"), "outbox")

    assert senders == []
    assert notifier._thread is None


def test_poke_never_raises(notifier: Notifier, caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = object()

    notifier.poke(broken, "outbox")

    assert "a poke failed" in caplog.text


def test_poke_while_the_interpreter_refuses_threads_is_silent_and_the_next_one_tries_again(
    notifier: Notifier,
    senders: list[NotingSender],
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        notifier.poke(engine, "outbox")
    assert caplog.text == ""
    assert notifier.settled(0)

    notifier.poke(engine, "outbox")

    assert notifier.settled(10)
    assert senders[0].channels == ["outbox"]


def test_poke_without_a_thread_to_be_had_is_told(
    notifier: Notifier,
    senders: list[NotingSender],
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        notifier.poke(engine, "outbox")

    assert "no thread for NOTIFY" in caplog.text


def test_a_failed_notify_stays_owed_and_one_outage_is_told_once(
    notifier: Notifier,
    senders: list[NotingSender],
    engine: Engine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sa_outbox.notifier")
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    sender = senders[0]
    sender.failing.set()

    notifier.poke(engine, "outbox")
    assert not notifier.settled(0.3)
    assert sender.attempts > 2
    sender.failing.clear()

    assert notifier.settled(10)
    assert sender.channels == ["outbox", "outbox"]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "NOTIFY can't be sent to noted; consumers poll until it can: no server"),
        ("INFO", "NOTIFY can be sent to noted again"),
    ]


def test_pauses_double_up_to_the_longest(
    notifier: Notifier,
    senders: list[NotingSender],
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "MAX_PAUSE_SECONDS", 0.04)
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    target = notifier._databases[id(engine.dialect)].targets["outbox"]
    senders[0].failing.set()

    notifier.poke(engine, "outbox")

    assert not notifier.settled(0.3)
    assert target.backoff is not None
    assert target.backoff.next() == 0.04
    assert 2 < senders[0].attempts < 15


def test_a_raising_log_handler_does_not_end_the_thread(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    class Raising(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise ValueError("handler")

    handler = Raising()
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    module.log.addHandler(handler)
    try:
        senders[0].failing.set()
        notifier.poke(engine, "outbox")
        assert not notifier.settled(0.1)
        senders[0].failing.clear()
        assert notifier.settled(10)
    finally:
        module.log.removeHandler(handler)
    assert senders[0].channels == ["outbox", "outbox"]


def test_an_engine_is_not_kept_alive_and_its_connection_is_closed(
    notifier: Notifier, senders: list[NotingSender]
) -> None:
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    alive = weakref.ref(engine)
    notifier.poke(engine, "outbox")
    assert senders[0].entered.wait(10)  # not settled(): its request would be the thread's last item

    del engine

    end = time.monotonic() + 10
    while alive() is not None and time.monotonic() < end:
        gc.collect()
    assert alive() is None
    assert senders[0].closed.wait(10)
    assert notifier._databases == {}


def test_a_poke_outlives_its_engine_until_it_is_sent(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    senders[0].entered.clear()
    senders[0].may_return.clear()
    notifier.poke(engine, "outbox")
    assert senders[0].entered.wait(10)
    short_lived = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    notifier.poke(short_lived, "outbox")

    del short_lived
    gc.collect()
    senders[0].may_return.set()

    assert notifier.settled(10)
    assert senders[1].channels == ["outbox"]


def test_an_engine_that_goes_during_an_outage_is_given_up(
    notifier: Notifier, senders: list[NotingSender]
) -> None:
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    alive = weakref.ref(engine)
    notifier.poke(engine, "warm")
    assert notifier.settled(10)
    senders[0].failing.set()
    notifier.poke(engine, "outbox")
    assert not notifier.settled(0.05)

    del engine
    gc.collect()

    assert notifier.settled(10)
    gc.collect()
    assert alive() is None
    assert senders[0].channels == ["warm"]


def test_close_tries_what_is_owed_once_and_gives_up_the_rest(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    senders[0].failing.set()
    notifier.poke(engine, "outbox")

    notifier.close(10)

    assert senders[0].closed.is_set()
    assert notifier.settled(0.5)


def test_a_poke_after_close_connects_again(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    notifier.close(10)

    notifier.poke(engine, "outbox")

    assert notifier.settled(10)
    assert senders[0].channels == ["outbox", "outbox"]


def test_close_returns_in_time_from_a_notify_that_hangs(
    notifier: Notifier, senders: list[NotingSender], engine: Engine
) -> None:
    notifier.poke(engine, "outbox")
    assert notifier.settled(10)
    senders[0].may_return.clear()
    notifier.poke(engine, "outbox")

    started = time.monotonic()
    notifier.close(0.1)

    assert time.monotonic() - started < 5


def test_an_error_that_may_quote_its_input_is_told_by_its_class_only() -> None:
    engine = create_engine("postgresql+psycopg://me:s3cret@db.example/shop")
    sender = Sender(engine)

    assert sender.name == "shop at db.example"
    assert sender.explain(engine, ValueError("bad dsn: password=s3cret")) == "ValueError"


def test_an_error_of_the_network_is_told_without_the_password() -> None:
    engine = create_engine("postgresql+psycopg://me:s3cret@db.example/shop")

    told = Sender(engine).explain(engine, OSError("no route for s3cret\nsecond line"))

    assert told == "OSError: no route for ***"


def test_what_the_server_said_is_told_of_a_wrapped_error() -> None:
    class Refused(Exception):
        sqlstate = "28P01"

    engine = create_engine("postgresql+psycopg://me:s3cret@db.example/shop")
    wrapped = ValueError("anything")
    wrapped.__cause__ = Refused("password authentication failed")

    told = Sender(engine).explain(engine, wrapped)

    assert told == "Refused: password authentication failed"


def test_the_statement_carries_the_channel_as_a_parameter() -> None:
    url = make_url("postgresql+asyncpg://")
    compiled = notify('odd "name"').compile(dialect=create_async_engine(url).dialect)

    assert "odd" not in str(compiled)
    assert list(compiled.construct_params().values()) == ['odd "name"', ""]


def test_importing_the_notifier_loads_no_driver() -> None:
    code = (
        "import sys, sa_outbox.producer.notifier\n"
        "print({'asyncpg', 'psycopg', 'psycopg2', 'gevent', 'anyio'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
