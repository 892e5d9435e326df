"""What the notifier sends, over every driver, through outages, forks and the interpreter's end."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Engine, create_engine, event, select
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox.producer import notifier as module
from sa_outbox.producer.notifier import INTERVAL_SECONDS, notifier
from sa_outbox.producer.sender import APPLICATION_NAME, SILENCE_SECONDS
from tests.support.proxy import Proxy

DRIVERS = ["psycopg", "psycopg2", "asyncpg", "psycopg_async"]
ASYNC_DRIVERS = ["asyncpg", "psycopg_async"]
SYNC_DRIVERS = ["psycopg", "psycopg2"]
CHANNEL = "notifier_test"
ROOT = Path(__file__).parents[2]


class Ear:
    """Listens on the channel, and sees the notifier's connections as an operator would."""

    def __init__(self, url: URL) -> None:
        dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute(f"LISTEN {CHANNEL}")
        self.connection.execute("LISTEN other_channel")
        self._came: list[psycopg.Notify] = []

    def hears(self) -> int:
        """Wait for one notification; the process id of its sender."""
        if not self._came:  # one packet may bring several
            self._came.extend(self.connection.notifies(timeout=10, stop_after=1))
        assert self._came, "no notification within 10 seconds"
        return self._came.pop(0).pid

    def heard(self) -> list[int]:
        """The senders of everything notified up to now, without waiting for more."""
        self.connection.execute("SELECT pg_notify(%s, 'the end')", [CHANNEL])
        while not any(each.payload for each in self._came):
            more = list(self.connection.notifies(timeout=10, stop_after=1))
            assert more, "own notification did not come back within 10 seconds"
            self._came.extend(more)
        pids = [each.pid for each in self._came if not each.payload]
        self._came.clear()
        return pids

    def connections(self) -> list[tuple[int, str]]:
        """Process id and state of each connection of a notifier to this database."""
        return self.connection.execute(
            "SELECT pid, state FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s",
            [APPLICATION_NAME],
        ).fetchall()

    def sees_connections(self, count: int) -> None:
        until(lambda: len(self.connections()) == count)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "did not come true within 10 seconds"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _notifier_at_rest() -> Iterator[None]:
    notifier.close(10)
    yield
    notifier.close(10)


@pytest.fixture
def ear(database_url: URL) -> Iterator[Ear]:
    ear = Ear(database_url)
    yield ear
    ear.connection.close()


def make_engine(driver: str, url: URL, **options: Any) -> Engine:
    url = url.set(drivername=f"postgresql+{driver}")
    if driver in ASYNC_DRIVERS:
        return create_async_engine(url, **options).sync_engine
    return create_engine(url, **options)


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(driver: str, database_url: URL) -> Engine:
    return make_engine(driver, database_url)


# --- sending ---------------------------------------------------------------------------------


def test_a_poke_is_followed_by_a_notify(engine: Engine, ear: Ear) -> None:
    notifier.poke(engine, CHANNEL)

    ear.hears()
    assert notifier.settled(10)


def test_the_connection_is_kept_and_left_outside_of_any_transaction(
    engine: Engine, ear: Ear
) -> None:
    notifier.poke(engine, CHANNEL)
    first = ear.hears()
    notifier.poke(engine, CHANNEL)
    second = ear.hears()

    assert notifier.settled(10)
    assert first == second
    assert ear.connections() == [(first, "idle")]


def test_a_burst_of_2000_pokes_is_at_most_one_notify_per_interval(engine: Engine, ear: Ear) -> None:
    notifier.poke(engine, CHANNEL)
    ear.hears()
    begin = time.monotonic()

    for _ in range(2000):
        notifier.poke(engine, CHANNEL)
        time.sleep(0.0001)  # the pace of commits: the burst lasts many intervals
    assert notifier.settled(10)
    elapsed = time.monotonic() - begin

    assert 1 <= len(ear.heard()) <= elapsed / INTERVAL_SECONDS + 1
    assert ear.heard() == []


def test_every_poke_after_silence_is_heard(engine: Engine, ear: Ear) -> None:
    for _ in range(50):
        notifier.poke(engine, CHANNEL)
        ear.hears()


def test_channels_of_one_engine_share_a_connection(engine: Engine, ear: Ear) -> None:
    notifier.poke(engine, CHANNEL)
    notifier.poke(engine.execution_options(logging_token="option"), "other_channel")

    assert ear.hears() == ear.hears()
    assert notifier.settled(10)
    assert len(ear.connections()) == 1


def test_two_engines_have_a_connection_each(database_url: URL, ear: Ear) -> None:
    engines = [make_engine("psycopg", database_url), make_engine("asyncpg", database_url)]

    for each in engines:
        notifier.poke(each, CHANNEL)

    assert ear.hears() != ear.hears()


# --- the engine's way of connecting ----------------------------------------------------------


@pytest.mark.parametrize("driver", SYNC_DRIVERS)
def test_an_exhausted_pool_does_not_matter(driver: str, database_url: URL, ear: Ear) -> None:
    engine = make_engine(driver, database_url, pool_size=1, max_overflow=0, pool_timeout=0.1)

    with engine.connect():
        notifier.poke(engine, CHANNEL)
        ear.hears()

    engine.dispose()


def test_hooks_that_fetch_a_token_are_asked(driver: str, database_url: URL, ear: Ear) -> None:
    engine = make_engine(driver, database_url.set(port=1))

    @event.listens_for(engine, "do_connect")
    def right_port(dialect: Dialect, record: Any, args: Any, options: dict[str, Any]) -> None:
        options["port"] = database_url.port

    notifier.poke(engine, CHANNEL)

    ear.hears()


@pytest.mark.parametrize("takes_record", [False, True])
def test_a_custom_creator_is_used(database_url: URL, ear: Ear, takes_record: bool) -> None:
    dsn = database_url.render_as_string(hide_password=False)
    creator: Any
    if takes_record:
        creator = lambda record: psycopg.connect(dsn)
    else:
        creator = lambda: psycopg.connect(dsn)
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing", creator=creator)

    notifier.poke(engine, CHANNEL)

    ear.hears()


def test_an_async_creator_is_used(database_url: URL, ear: Ear) -> None:
    async def creator() -> Any:
        return await asyncpg.connect(database_url.render_as_string(hide_password=False))

    url = "postgresql+asyncpg://nobody@127.0.0.1:1/nothing"
    engine = create_async_engine(url, async_creator=creator)

    notifier.poke(engine.sync_engine, CHANNEL)

    ear.hears()


def test_hooks_of_the_pool_and_the_engine_are_left_alone(engine: Engine, ear: Ear) -> None:
    called = []
    for name in ("connect", "checkout", "checkin", "close", "detach"):
        event.listen(engine, name, lambda *_, name=name: called.append(name))
    event.listen(engine, "before_cursor_execute", lambda *_: called.append("execute"))
    event.listen(engine, "handle_error", lambda *_: called.append("error"))

    notifier.poke(engine, CHANNEL)
    ear.hears()
    notifier.close(10)

    assert called == []


def test_dispose_neither_closes_nor_disturbs_the_connection(engine: Engine, ear: Ear) -> None:
    notifier.poke(engine, CHANNEL)
    first = ear.hears()

    engine.dispose()
    notifier.poke(engine, CHANNEL)

    assert ear.hears() == first


def test_a_collected_engine_takes_its_connection_along(
    driver: str, database_url: URL, ear: Ear
) -> None:
    engine = make_engine(driver, database_url)
    notifier.poke(engine, CHANNEL)
    ear.hears()
    assert notifier.settled(10)

    del engine
    gc.collect()

    ear.sees_connections(0)


def test_close_closes_the_connection_and_a_later_poke_opens_another(
    engine: Engine, ear: Ear
) -> None:
    notifier.poke(engine, CHANNEL)
    first = ear.hears()

    notifier.close(10)
    ear.sees_connections(0)
    notifier.poke(engine, CHANNEL)

    assert ear.hears() != first


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
@pytest.mark.parametrize("driver", SYNC_DRIVERS)
def test_a_sync_connection_gives_up_on_bytes_nobody_acknowledges(engine: Engine, ear: Ear) -> None:
    notifier.poke(engine, CHANNEL)
    ear.hears()
    assert notifier.settled(10)

    connection: Any = notifier._databases[id(engine.dialect)].sender._connection
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as ours:
        limit = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert limit == SILENCE_SECONDS * 1000


# --- threads and loops -----------------------------------------------------------------------


def test_commits_of_async_sessions_poke_from_one_closed_loop_after_the_other(
    database_url: URL, ear: Ear
) -> None:
    class Hooked(Session):
        pass

    async def commit() -> None:
        engine = create_async_engine(database_url.set(drivername="postgresql+asyncpg"))
        async with AsyncSession(engine, sync_session_class=Hooked) as session:
            await session.execute(select(1))
            await session.commit()
        await engine.dispose()

    @event.listens_for(Hooked, "after_commit")
    def poke(session: Session) -> None:
        bind = session.get_bind()
        assert isinstance(bind, Engine)
        notifier.poke(bind, CHANNEL)

    for _ in range(3):
        asyncio.run(commit())
        ear.hears()


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
def test_two_loops_in_two_threads_and_no_loop_poke_the_same_engine(
    engine: Engine, ear: Ear
) -> None:
    async def poke() -> None:
        notifier.poke(engine, CHANNEL)

    for _ in range(2):
        thread = threading.Thread(target=lambda: asyncio.run(poke()))
        thread.start()
        thread.join()
        ear.hears()

    notifier.poke(engine, CHANNEL)
    ear.hears()


# --- outages ---------------------------------------------------------------------------------


def test_a_killed_connection_is_replaced_without_a_word(
    engine: Engine, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.poke(engine, CHANNEL)
    first = ear.hears()
    ear.connection.execute("SELECT pg_terminate_backend(%s)", [first])
    ear.sees_connections(0)

    notifier.poke(engine, CHANNEL)

    assert ear.hears() != first
    assert notifier.settled(10)
    assert [record for record in caplog.records if record.name == module.log.name] == []


def test_a_server_that_goes_away_and_comes_back_gets_what_is_owed(
    driver: str, database_url: URL, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, module.log.name)
    with Proxy(database_url) as proxy:
        proxy.open()
        url = database_url.set(host="127.0.0.1", port=proxy.port)
        engine = make_engine(driver, url)
        notifier.poke(engine, CHANNEL)
        ear.hears()
        proxy.shut()

        notifier.poke(engine, CHANNEL)
        until(lambda: "can't be sent" in caplog.text)
        assert not notifier.settled(0.25)
        proxy.open()

        ear.hears()
        assert notifier.settled(10)
        notifier.close(10)
    told = [
        (each.levelname, each.getMessage())
        for each in caplog.records
        if each.name == module.log.name
    ]
    assert [level for level, _ in told] == ["WARNING", "INFO"]
    assert all(f"{database_url.database} at 127.0.0.1" in text for _, text in told)
    assert not database_url.password or database_url.password not in caplog.text


def test_a_server_that_is_away_at_first_is_found_when_it_comes(
    driver: str, database_url: URL, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(database_url) as proxy:
        engine = make_engine(driver, database_url.set(host="127.0.0.1", port=proxy.port))
        notifier.poke(engine, CHANNEL)
        until(lambda: "can't be sent" in caplog.text)

        proxy.open()

        ear.hears()
        notifier.close(10)


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
def test_a_server_that_says_nothing_is_left_after_the_limit(
    driver: str,
    database_url: URL,
    ear: Ear,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.2)
    with Proxy(database_url) as proxy:
        proxy.open(silent=True)
        engine = make_engine(driver, database_url.set(host="127.0.0.1", port=proxy.port))
        notifier.poke(engine, CHANNEL)
        until(lambda: "TimeoutError" in caplog.text)
        proxy.shut()
        proxy.open()

        ear.hears()
        notifier.close(10)


# --- processes -------------------------------------------------------------------------------

PREAMBLE = """
import atexit, gc, os, sys, threading
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sa_outbox.producer.notifier import notifier

def make_engine(driver, url):
    if driver in ("asyncpg", "psycopg_async"):
        return create_async_engine(url).sync_engine
    return create_engine(url)

driver, url, channel = sys.argv[1:]
"""


def run(code: str, driver: str, url: URL, *, before: str = "") -> subprocess.CompletedProcess[str]:
    address = url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)
    script = before + PREAMBLE + textwrap.dedent(code)
    options = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]  # 3.12 and os.fork
    return subprocess.run(
        [sys.executable, *options, "-c", script, driver, address, CHANNEL],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def ended_well(done: subprocess.CompletedProcess[str]) -> bool:
    assert (done.returncode, done.stderr) == (0, "")
    return True


def test_forked_processes_poke_on_their_own_and_leave_the_parents_connection_alone(
    driver: str, database_url: URL, ear: Ear
) -> None:
    done = run(
        """
        engine = make_engine(driver, url)
        notifier.poke(engine, channel)
        assert notifier.settled(10)
        for _ in range(2):
            if (child := os.fork()) == 0:
                notifier.poke(engine, channel)
                assert notifier.settled(10)
                del engine
                gc.collect()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        notifier.poke(engine, channel)
        assert notifier.settled(10)
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    first, one, two, last = ear.heard()
    assert first == last
    assert len({first, one, two}) == 3
    ear.sees_connections(0)


def test_a_child_that_never_pokes_leaves_the_parents_connection_alone(
    driver: str, database_url: URL, ear: Ear
) -> None:
    done = run(
        """
        engine = make_engine(driver, url)
        notifier.poke(engine, channel)
        assert notifier.settled(10)
        if (child := os.fork()) == 0:
            del engine
            gc.collect()
            notifier.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        notifier.poke(engine, channel)
        assert notifier.settled(10)
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    first, last = ear.heard()
    assert first == last


@pytest.mark.parametrize("driver", ["psycopg"])
def test_locks_held_at_the_fork_do_not_hold_the_child(
    driver: str, database_url: URL, ear: Ear
) -> None:
    done = run(
        """
        engine = make_engine(driver, url)
        notifier._starting.acquire()        # as by another thread in the middle of its first poke
        if (child := os.fork()) == 0:
            notifier.poke(engine, channel)
            sys.exit(not notifier.settled(10))
        assert os.waitpid(child, 0)[1] == 0
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    assert len(ear.heard()) == 1


@pytest.mark.parametrize("driver", ["psycopg"])
@pytest.mark.parametrize(("lasts", "seen"), [(0.1, "not in the driver"), (3, "in the driver")])
def test_a_fork_waits_for_the_driver_but_not_for_ever(
    driver: str, database_url: URL, lasts: float, seen: str
) -> None:
    # OpenSSL's locks are not ours to renew in the child: the fork must not come between.
    done = run(
        f"""
        import time
        from sa_outbox.producer.sender import Sender
        entered, state = threading.Event(), ["not in the driver"]

        def send(*_):
            state[0] = "in the driver"
            entered.set()
            time.sleep({lasts})
            state[0] = "not in the driver"

        Sender.send = send
        engine = make_engine(driver, url)
        notifier.poke(engine, channel)
        entered.wait()
        began = time.monotonic()
        if (child := os.fork()) == 0:
            print(state[0], flush=True)
            os._exit(0)
        assert time.monotonic() - began < 2.5
        os.waitpid(child, 0)
        assert notifier.settled(10)
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    assert done.stdout.strip() == seen


def test_forks_in_the_middle_of_pokes_and_notifies_leave_every_process_working(
    driver: str, database_url: URL, ear: Ear
) -> None:
    done = run(
        """
        engine = make_engine(driver, url)
        over = threading.Event()

        def poke():
            while not over.wait(0.0005):
                notifier.poke(engine, channel)

        threads = [threading.Thread(target=poke) for _ in range(3)]
        for each in threads:
            each.start()
        for _ in range(5):
            if (child := os.fork()) == 0:
                notifier.poke(engine, channel)
                sys.exit(not notifier.settled(10))
            assert os.waitpid(child, 0)[1] == 0
        over.set()
        for each in threads:
            each.join()
        assert notifier.settled(10)
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    assert len(set(ear.heard())) == 6


def test_the_last_poke_is_sent_at_the_interpreters_end(
    driver: str, database_url: URL, ear: Ear
) -> None:
    code = "engine = make_engine(driver, url); notifier.poke(engine, channel)"

    done = run(code, driver, database_url.set(host="localhost"))

    assert ended_well(done)
    assert len(ear.heard()) == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_poke_owed_behind_another_is_sent_at_the_interpreters_end(
    driver: str, database_url: URL, ear: Ear
) -> None:
    done = run(
        """
        engine = make_engine(driver, url)
        notifier.poke(engine, channel)
        assert notifier.settled(10)
        notifier.poke(engine, channel)
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    assert len(ear.heard()) == 2


def test_the_interpreter_ends_quietly_when_the_server_is_away(
    driver: str, database_url: URL
) -> None:
    with Proxy(database_url) as proxy:
        done = run(
            """
            import logging
            logging.getLogger("sa_outbox.notifier").addHandler(logging.NullHandler())
            engine = make_engine(driver, url)
            notifier.poke(engine, channel)
            """,
            driver,
            database_url.set(host="127.0.0.1", port=proxy.port),
        )

    assert ended_well(done)


def test_the_interpreters_end_is_not_held_up_by_a_server_that_says_nothing(
    driver: str, database_url: URL
) -> None:
    with Proxy(database_url) as proxy:
        proxy.open(silent=True)
        done = run(
            """
            import logging, time
            logging.getLogger("sa_outbox.notifier").addHandler(logging.NullHandler())
            engine = make_engine(driver, url)
            notifier.poke(engine, channel)
            began = time.monotonic()
            atexit.unregister(notifier._exit)
            atexit.register(lambda: print(time.monotonic() - began))
            atexit.register(notifier._exit)
            """,
            driver,
            database_url.set(host="127.0.0.1", port=proxy.port),
        )

    assert ended_well(done)
    assert float(done.stdout) < 3


def test_a_poke_of_an_exit_handler_is_sent(driver: str, database_url: URL, ear: Ear) -> None:
    done = run(
        """
        engine = make_engine(driver, url)
        atexit.register(lambda: notifier.poke(engine, channel))
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    assert len(ear.heard()) == 1


@pytest.mark.parametrize("driver", ["psycopg"])
def test_a_poke_of_an_exit_handler_older_than_the_notifier_is_ignored(
    driver: str, database_url: URL, ear: Ear
) -> None:
    before = "import atexit\natexit.register(lambda: notifier.poke(engine, channel))\n"

    done = run("engine = make_engine(driver, url)", driver, database_url, before=before)

    assert ended_well(done)
    assert ear.heard() == []


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
def test_uvloop_as_the_policy_and_as_the_running_loop(
    driver: str, database_url: URL, ear: Ear
) -> None:
    done = run(
        """
        import asyncio, uvloop, warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)   # policies, since 3.14
            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

        async def main():
            assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
            notifier.poke(engine, channel)

        for _ in range(2):
            engine = make_engine(driver, url)
            uvloop.run(main())
            assert notifier.settled(10)
        """,
        driver,
        database_url,
    )

    assert ended_well(done)
    assert len(ear.heard()) == 2
