"""Consumer processes as an operator meets them: how they start, what they say, how they end."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text

from sa_outbox import Event, Outbox
from sa_outbox.consume.stop import MARGIN_SECONDS
from sa_outbox.consumer import Consumer
from tests.support import eventually
from tests.support.command import Command
from tests.support.proxy import Proxy

SECRET = "4111-1111-1111-1111"

PROGRAM = """
import asyncio
import sys
import termios
import time
from datetime import timedelta
from pathlib import Path

from sa_outbox import Event, Outbox, RetryPolicy

outbox = Outbox()
here = Path(__file__).parent


async def wait_for(name: str) -> None:
    while not (here / name).exists():
        await asyncio.sleep(0.01)
"""

QUICK = """
@outbox.listener("billing", on="*")
async def bill(event: Event) -> None:
    (here / "handled").touch()
"""

SLOW = """
@outbox.listener("billing", on="*")
async def bill(event: Event) -> None:
    (here / "begun").touch()
    await wait_for("go")
    (here / "ended").touch()
"""

SWALLOWING = """
@outbox.listener("billing", on="*")
async def bill(event: Event) -> None:
    (here / "begun").touch()
    while True:
        try:
            await asyncio.sleep(1)
        except BaseException:
            pass
"""

BLOCKING = """
@outbox.listener("billing", on="*")
async def bill(event: Event) -> None:
    (here / "begun").touch()
    while not (here / "go").exists():
        time.sleep(0.01)
"""

LOADING = """
(here / "gate").read_text()
"""

LIFESPAN = """
@outbox.lifespan
async def client():
    (here / "set up").touch()
    yield
    (here / "torn down").touch()
"""

Run = Callable[..., Command]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def dsn(migrated_url: URL, engine: Engine) -> str:
    """The worker's database, emptied."""
    return migrated_url.render_as_string(hide_password=False)


@pytest.fixture
def run(folder: Path, dsn: str) -> Iterator[Run]:
    """Starts the command for a program; what still runs at the end is killed."""
    started: list[Command] = []

    def start(
        source: str = QUICK,
        *words: str,
        target: str = "app:outbox",
        shell: str = "%s",
        stdout: int = subprocess.PIPE,
        **environment: str,
    ) -> Command:
        (folder / "app.py").write_text(PROGRAM + dedent(source))
        given = {"SA_OUTBOX_DATABASE_URL": dsn} | environment
        started.append(Command(folder, [target, *words], given, shell=shell, stdout=stdout))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def add(engine: Engine) -> Callable[..., None]:
    """Commits an event; nobody is notified."""
    make = Outbox(notify="off").sessionmaker(engine)

    def add_event(event_type: str = "order.placed", payload: Any = None, **options: Any) -> None:
        with make.begin() as session:
            session.add_event(event_type, payload or {}, **options)

    return add_event


def positions(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        rows = connection.execute(
            text("SELECT name, last_processed_id AS position FROM outbox_listeners")
        )
        return {row.name: row.position for row in rows}


def functions_in(line: dict[str, Any]) -> list[str]:
    return re.findall(r'"function": "(\w+)"', json.dumps(line["exception"]))


def held(engine: Engine) -> int:
    with engine.connect() as connection:
        statement = (
            "SELECT count(*) FROM outbox_listeners WHERE lease_expires_at > clock_timestamp()"
        )
        found: int = connection.execute(text(statement)).scalar_one()
        return found


def unread(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(count)


def exists(folder: Path, name: str) -> None:
    eventually((folder / name).exists, within=30)


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_signal_stops_an_idle_consumer_in_good_order(
        self, run: Run, engine: Engine, number: signal.Signals
    ) -> None:
        command = run()
        command.says("listening")
        command.signal(number)

        assert command.ends() == 0
        assert command.says("stopping")["reason"] == number.name
        assert [line["event"] for line in command.lines()][-2:] == ["lease released", "stopped"]
        assert held(engine) == 0
        assert command.err == []

    def test_a_handler_that_runs_is_not_cut_off(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        add()
        command = run(SLOW)
        exists(folder, "begun")
        command.signal(signal.SIGTERM)
        command.says("stopping")
        assert not (folder / "ended").exists()
        (folder / "go").touch()

        assert command.ends() == 0
        assert (folder / "ended").exists()
        assert positions(engine) == {"billing": 1}  # nothing new was begun

    def test_after_the_grace_period_it_is_cancelled_and_attempted_again_by_others(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(SLOW, "--grace-period", "0.2")
        exists(folder, "begun")
        command.signal(signal.SIGTERM)

        assert command.ends() == 0
        assert positions(engine) == {"billing": 0}
        assert held(engine) == 0

    def test_the_second_signal_cancels_everything_at_once(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(SLOW)
        exists(folder, "begun")
        command.signal(signal.SIGTERM)
        command.says("stopping")
        command.signal(signal.SIGTERM)

        assert command.ends(within=5) == 143
        assert positions(engine) == {"billing": 0}
        assert not command.lines("ended by force")

    def test_the_second_one_counts_whatever_the_first_was(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(SLOW)
        exists(folder, "begun")
        command.signal(signal.SIGTERM)
        command.says("stopping")
        command.signal(signal.SIGINT)

        assert command.ends(within=5) == 130

    @pytest.mark.parametrize("source", [SWALLOWING, BLOCKING], ids=["swallowing", "blocking"])
    def test_the_second_signal_ends_a_handler_that_can_not_be_cancelled(
        self, run: Run, folder: Path, add: Callable[..., None], source: str
    ) -> None:
        add()
        command = run(source)
        exists(folder, "begun")
        command.signal(signal.SIGTERM)
        command.signal(signal.SIGINT)  # another one: two of a kind may arrive as one

        assert command.ends(within=8) in {130, 143}
        assert command.says("ended by force")["stack"]

    def test_a_signal_while_it_waits_for_the_database_stops_it(self, run: Run) -> None:
        command = run(SA_OUTBOX_DATABASE_URL=f"postgresql://nobody@127.0.0.1:{free_port()}/x")
        command.says("database can't be reached")
        command.signal(signal.SIGTERM)

        assert command.ends(within=5) == 0

    def test_a_network_that_is_dead_does_not_hold_it(
        self, run: Run, migrated_url: URL, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        with Proxy(migrated_url) as proxy:
            proxy.open()
            url = migrated_url.set(host="127.0.0.1", port=proxy.port)
            address = url.render_as_string(hide_password=False)
            command = run(SLOW, "--grace-period", "1", SA_OUTBOX_DATABASE_URL=address)
            command.says("listening")
            exists(folder, "begun")
            proxy.best_effort()
            command.signal(signal.SIGTERM)

            assert command.ends(within=1 + 5 + 3) in {0, 6}

    def test_nohup_keeps_it_from_hearing_that_its_terminal_is_gone(self, run: Run) -> None:
        command = run(shell="trap '' HUP; exec %s")
        command.says("listening")
        command.signal(signal.SIGHUP)
        command.signal(signal.SIGTERM)

        assert command.ends() == 0
        assert command.says("stopping")["reason"] == "SIGTERM"


class TestLifespan:
    def test_it_ends_after_the_last_handler(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(LIFESPAN + SLOW)
        exists(folder, "begun")
        assert (folder / "set up").exists()
        command.signal(signal.SIGTERM)
        command.says("stopping")
        assert not (folder / "torn down").exists()
        (folder / "go").touch()

        assert command.ends() == 0
        assert (folder / "ended").exists()
        assert (folder / "torn down").exists()

    def test_a_start_that_raises_ends_the_process_before_it_takes_anything(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None]
    ) -> None:
        """Even if it is about a connection: it is not the outbox's database that is away."""
        add()
        raises = f"""
        import asyncpg

        @outbox.lifespan
        async def client():
            raise asyncpg.CannotConnectNowError("{SECRET[::-1]}"[::-1])
            yield
        """
        command = run(dedent(raises) + QUICK)

        assert command.ends() == 1
        line = command.says("lifespan failed")
        assert "'client' raised CannotConnectNowError at the start" in line["reason"]
        assert "client" in functions_in(line)
        assert SECRET not in command.text
        assert not command.lines("lease claimed")
        assert not (folder / "handled").exists()
        assert positions(engine) == {"billing": 0}

    @pytest.mark.parametrize(("ending", "code"), [("asyncio.sleep(99)", 1), ("wait_for('x')", 6)])
    def test_an_end_that_hangs_has_the_grace_period(
        self, run: Run, engine: Engine, ending: str, code: int
    ) -> None:
        hangs = f"""
        @outbox.lifespan
        async def client():
            yield
            while True:
                try:
                    await {ending}
                except asyncio.CancelledError:
                    if {code} == 1:
                        raise
        """
        command = run(dedent(hangs) + QUICK, "--grace-period", "0.1")
        command.says("lease claimed")
        command.signal(signal.SIGTERM)

        assert command.ends(within=10) == code
        assert command.says("stopped")
        assert command.says("lifespan failed" if code == 1 else "ended by force")
        assert held(engine) == 0


class TestHandlersThatEndTheProcess:
    def test_system_exit_stops_it_in_good_order_with_a_code_of_its_own(
        self, run: Run, engine: Engine, add: Callable[..., None]
    ) -> None:
        add()
        command = run(
            """
            @outbox.listener("billing", on="*")
            async def bill(event: Event) -> None:
                sys.exit(0)
            """
        )

        assert command.ends() == 5
        assert "SystemExit" in command.says("stopping")["reason"]
        assert held(engine) == 0

    def test_system_exit_is_one_attempt(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(
            """
            @outbox.listener("billing", on="*")
            async def bill(event: Event) -> None:
                with (here / "attempts").open("a") as file:
                    file.write("one\\n")
                sys.exit(1)
            """
        )

        assert command.ends() == 5
        assert (folder / "attempts").read_text() == "one\n"

    @pytest.mark.parametrize("kind", ["async def", "def"])
    def test_keyboard_interrupt_does_too_and_is_no_attempt(
        self, run: Run, engine: Engine, add: Callable[..., None], kind: str
    ) -> None:
        add()
        command = run(
            f"""
            @outbox.listener("billing", on="*")
            {kind} bill(event: Event) -> None:
                raise KeyboardInterrupt
            """
        )

        assert command.ends() == 5
        assert command.lines("attempt failed") == []
        assert command.says("stopped")
        assert positions(engine) == {"billing": 0}
        assert held(engine) == 0

    @pytest.mark.long
    def test_one_that_swallows_its_cancellation_is_ended_by_force(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(SWALLOWING, "--grace-period", "0.3")
        exists(folder, "begun")
        command.signal(signal.SIGTERM)

        assert command.ends() == 6
        assert command.says("ended by force")["exit_code"] == 6

    @pytest.mark.long
    def test_one_that_ignores_its_time_limit_stops_the_process(
        self, run: Run, add: Callable[..., None]
    ) -> None:
        add()
        source = SWALLOWING.replace('on="*"', 'on="*", timeout=timedelta(milliseconds=100)')
        command = run(source, "--grace-period", "0.3")

        assert command.ends() == 6
        assert command.says("handler ignored cancel", listener="billing", position=1)
        assert command.says("ended by force")["reason"] == "a handler ignored its cancellation"

    @pytest.mark.long
    def test_a_thread_that_never_ends_can_not_keep_the_process(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(
            """
            @outbox.listener("billing", on="*")
            def bill(event: Event) -> None:
                (here / "begun").touch()
                while True:
                    time.sleep(1)
            """,
            "--grace-period",
            "0.3",
        )
        exists(folder, "begun")
        command.signal(signal.SIGTERM)

        assert command.ends() == 6
        assert command.lines("stopped")
        last = command.says("ended by force")
        assert "threads" in last["reason"]
        assert "in bill" in last["stack"]


class TestStarting:
    def test_its_first_line_is_there_while_the_program_is_being_imported(
        self, run: Run, folder: Path
    ) -> None:
        os.mkfifo(folder / "gate")
        command = run(LOADING + QUICK)

        assert command.says("starting")["app"] == "app:outbox"
        assert [line["event"] for line in command.lines()] == ["starting"]
        (folder / "gate").write_text("go")
        command.says("listening")

    @pytest.mark.parametrize(
        ("target", "told"),
        [
            ("app", "'app' is not module:attribute, as in app:outbox"),
            ("ap:outbox", "did you mean 'app'?"),
            ("app:outbx", "app has no attribute 'outbx'; did you mean 'outbox'?"),
            ("app:bill", "app:bill is not an Outbox but a function; its outboxes: app:outbox"),
            ("broken:outbox", "ZeroDivisionError: division by zero"),
        ],
    )
    def test_a_typo_gets_an_answer(self, run: Run, folder: Path, target: str, told: str) -> None:
        (folder / "broken.py").write_text("1 / 0\n")
        command = run(target=target)

        assert command.ends() == 2
        assert told in command.text
        assert "Traceback" not in command.text
        assert [line["event"] for line in command.lines()] == ["starting"]

    def test_an_unknown_listener_gets_the_near_one(self, run: Run) -> None:
        command = run(QUICK, "--listener", "biling")

        assert command.ends() == 2
        assert "there is no listener 'biling'; did you mean 'billing'?" in command.text

    def test_only_the_listeners_asked_for_are_claimed(self, run: Run) -> None:
        other = QUICK.replace("billing", "mailing").replace("bill(", "mail(")
        command = run(QUICK + other, "--listener", "mailing")
        command.says("listening")
        command.signal(signal.SIGTERM)

        assert command.ends() == 0
        assert [line["listener"] for line in command.lines("lease claimed")] == ["mailing"]

    def test_missing_tables_are_answered_with_what_makes_them(
        self, run: Run, new_database: Callable[[], URL]
    ) -> None:
        empty = new_database().render_as_string(hide_password=False)
        command = run(SA_OUTBOX_DATABASE_URL=empty)

        assert command.ends() == 3
        (line,) = command.lines(level="error")
        assert "sa-outbox migrate" in line["reason"]
        assert "Traceback" not in command.text

    def test_a_database_that_can_not_be_reached_is_tried_for_a_while(self, run: Run) -> None:
        url = f"postgresql://shop:{SECRET}@127.0.0.1:{free_port()}/shop"
        command = run(QUICK, "--wait-for-database", "0.8", SA_OUTBOX_DATABASE_URL=url)

        assert command.ends() == 4
        attempts = [line["attempt"] for line in command.lines("database can't be reached")]
        assert attempts == [1, 2]
        (line,) = command.lines(level="error")
        assert "ConnectionRefusedError" in line["reason"]
        assert SECRET not in command.text

    @pytest.mark.parametrize("part", ["database", "username", "password"])
    def test_one_that_refuses_is_not_tried_again(
        self, run: Run, migrated_url: URL, part: str
    ) -> None:
        change: Any = {part: SECRET if part == "password" else "nobody_here"}
        wrong = migrated_url.set(**change).render_as_string(hide_password=False)
        command = run(SA_OUTBOX_DATABASE_URL=wrong)

        assert command.ends(within=20) == 4
        _, line = command.lines()
        assert line["level"] == "error"
        assert "nobody_here" in line["reason"] or "password" in line["reason"]
        assert SECRET not in command.text
        assert str(migrated_url.password) not in command.text

    def test_it_starts_when_the_database_comes_up(self, run: Run, migrated_url: URL) -> None:
        with Proxy(migrated_url) as proxy:
            url = migrated_url.set(host="127.0.0.1", port=proxy.port)
            command = run(SA_OUTBOX_DATABASE_URL=url.render_as_string(hide_password=False))
            command.says("database can't be reached")
            proxy.open()
            command.says("listening")
            command.signal(signal.SIGTERM)

            assert command.ends() == 0

    @pytest.mark.parametrize(
        ("words", "once"),
        [
            (b"outbox_meta", False),
            (b"outbox_listeners", False),
            (b"outbox_consumers", False),
            (b"outbox_meta", True),
            (b"outbox_listeners", True),
        ],
    )
    def test_a_connection_that_is_cut_while_it_starts_costs_another_try(
        self, run: Run, migrated_url: URL, add: Callable[..., None], words: bytes, once: bool
    ) -> None:
        """When it verifies, when it registers its listeners, when it announces itself, which one
        that only drains does not do."""
        add()
        with Proxy(migrated_url) as proxy:
            proxy.open()
            proxy.cut_at(words)
            url = migrated_url.set(host="127.0.0.1", port=proxy.port)
            address = url.render_as_string(hide_password=False)
            options = ["--once"] if once else []
            command = run(QUICK, *options, SA_OUTBOX_DATABASE_URL=address)
            command.says("drained" if once else "listening")
            assert not proxy.still_to_cut
            assert command.lines("database can't be reached", level="warning")
            if not once:
                command.signal(signal.SIGTERM)

            assert command.ends() == 0

    def test_a_connection_that_is_cut_at_every_start_ends_it_when_its_time_is_over(
        self, run: Run, migrated_url: URL
    ) -> None:
        with Proxy(migrated_url) as proxy:
            proxy.open()
            proxy.cut_at(b"outbox_meta", times=1_000)
            url = migrated_url.set(host="127.0.0.1", port=proxy.port)
            address = url.render_as_string(hide_password=False)
            command = run(QUICK, "--wait-for-database", "2", SA_OUTBOX_DATABASE_URL=address)

            assert command.ends() == 4

    def test_an_error_that_nobody_expected_is_shown_by_its_way_and_not_by_its_text(
        self, run: Run
    ) -> None:
        command = run(
            QUICK
            + dedent(
                f"""
                from sa_outbox.consumer.supervisor import Supervisor

                async def broken(self, tasks) -> None:
                    raise RuntimeError({SECRET!r})

                Supervisor.start = broken
                """
            )
        )

        assert command.ends() == 1
        (line,) = command.lines(level="error")
        assert line["error"] == "RuntimeError"
        assert "broken" in functions_in(line)
        assert "RuntimeError: " not in command.text


class TestOnce:
    def test_it_handles_what_is_there_and_says_how_much(
        self, run: Run, engine: Engine, add: Callable[..., None]
    ) -> None:
        for _ in range(3):
            add()
        command = run(QUICK, "--once")

        assert command.ends() == 0
        line = command.says("drained")
        counts = ("handled", "retried", "dead", "waiting")
        assert [line[each] for each in counts] == [3, 0, 0, 0]
        assert positions(engine) == {"billing": 3}
        assert held(engine) == 0

    def test_what_fails_is_left_for_the_next_time(self, run: Run, add: Callable[..., None]) -> None:
        add(key="a")
        add(key="b")
        source = """
            from sa_outbox import Reject

            @outbox.listener("billing", on="*", retry=RetryPolicy(attempts=2))
            async def bill(event: Event) -> None:
                if event.key == "a":
                    raise Reject("never")
                raise ValueError
        """
        command = run(source, "--once")

        assert command.ends() == 0
        line = command.says("drained")
        counts = ("handled", "retried", "dead", "waiting")
        assert [line[each] for each in counts] == [0, 1, 1, 1]

    def test_with_a_limit_it_handles_no_more_and_says_that_there_may_be_more(
        self, run: Run, add: Callable[..., None]
    ) -> None:
        for _ in range(3):
            add()
        command = run(QUICK, "--once", "--limit", "2")

        assert command.ends() == 0
        assert command.says("limit reached")["handled"] == 2
        assert run(QUICK, "--limit", "2").ends() == 2  # it runs until it is stopped

    def test_stopped_on_the_way_it_says_so(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        add()
        command = run(SLOW, "--once")
        exists(folder, "begun")
        command.signal(signal.SIGTERM)
        command.says("stopping")
        (folder / "go").touch()

        assert command.ends() == 0
        assert command.says("stopped before all was handled")["handled"] == 1

    def test_a_listener_that_another_process_holds_is_left_to_it(
        self, run: Run, add: Callable[..., None]
    ) -> None:
        first = run()
        first.says("listening")
        second = run(QUICK, "--once")

        assert second.ends() == 0
        assert second.says("drained")["handled"] == 0
        assert second.lines("lease claimed") == []

    def test_a_relay_whose_other_side_is_away_is_left_for_the_next_time(
        self, run: Run, engine: Engine, add: Callable[..., None]
    ) -> None:
        add()
        source = """
            from sa_outbox.errors import RelayUnavailable

            class Line:
                keeps_order, takes_batches = False, True
                attribute_prefix = "ce-"

                def check_destination(self, destination: str) -> None: ...

                async def send(self, messages):
                    raise RelayUnavailable("nobody is there")

                async def close(self) -> None: ...

            outbox.relay("line", Line(), on="*", to="orders")

            @outbox.listener("billing", on="*")
            async def bill(event: Event) -> None: ...
        """
        command = run(source, "--once")

        assert command.ends() == 7
        line = command.says("events wait for a relay")
        assert line["waiting"] == {"line": "RelayUnavailable"}
        assert line["handled"] == 1
        assert positions(engine) == {"billing": 1, "line": 0}
        assert held(engine) == 0


class TestLog:
    def test_every_line_is_json_and_none_holds_what_events_hold(
        self, run: Run, add: Callable[..., None]
    ) -> None:
        add(
            "order.placed",
            {"card": SECRET},
            key=f"key {SECRET}",
            headers={"card": SECRET},
        )
        source = """
            @outbox.listener("billing", on="*", retry=RetryPolicy(attempts=1))
            async def bill(event: Event) -> None:
                raise ValueError(event.payload["card"], event.key)
        """
        command = run(source, "--log-level", "debug")
        command.says("dead letter")
        command.signal(signal.SIGTERM)

        assert command.ends() == 0
        failed = command.says("attempt failed")
        assert failed["error"] == failed["code"] == "ValueError"
        assert failed["listener"] == "billing"
        assert failed["event_type"] == "order.placed"
        assert failed["attempt"] == 1
        assert command.lines("settled", outcome="dead")
        assert SECRET not in command.text
        assert command.err == []

    def test_an_event_type_can_not_forge_a_line(
        self, run: Run, engine: Engine, folder: Path
    ) -> None:
        forged = 'order.placed\n{"event": "stopped"}'
        with engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO outbox (event_id, event_type, payload)"
                    " VALUES (gen_random_uuid(), :name, '{}')"
                ),
                {"name": forged},
            )
        command = run(QUICK, "--once", "--log-level", "debug")

        assert command.ends() == 0
        assert command.says("settled")["event_type"] == forged

    def test_a_blocked_loop_is_reported_while_it_is_blocked(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        command = run(BLOCKING, "--blocked-after", "0.2")

        line = command.says("loop blocked")
        assert not (folder / "go").exists()
        assert "in bill" in line["stack"]
        assert line["seconds"] >= 0.2
        (folder / "go").touch()
        command.signal(signal.SIGTERM)
        assert command.ends() == 0
        assert len(command.lines("loop blocked")) == 1

    def test_a_reader_that_went_away_does_not_matter(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None]
    ) -> None:
        reading, writing = os.pipe()
        command = run(QUICK + "    print('handled')\n", stdout=writing)
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        eventually(lambda: held(engine) == 1, within=30)
        add()
        with engine.begin() as connection:
            connection.execute(text("NOTIFY outbox"))
        exists(folder, "handled")
        eventually(lambda: positions(engine) == {"billing": 1}, within=30)
        command.signal(signal.SIGTERM)

        assert command.ends() == 0
        assert command.err == []

    def test_a_reader_that_stopped_reading_can_not_keep_it(
        self, run: Run, folder: Path, add: Callable[..., None]
    ) -> None:
        add()
        reading, writing = os.pipe()
        source = SLOW.replace(
            "    await wait_for", "    print('x' * 1_000_000)\n    await wait_for"
        )
        command = run(source, stdout=writing)
        os.close(writing)
        exists(folder, "begun")
        # It stands in its print: what it has written is a full pipe.
        eventually(lambda: unread(reading) > 32_768)
        command.signal(signal.SIGTERM)
        command.signal(signal.SIGINT)

        assert command.ends(within=8) in {130, 143}
        os.close(reading)

    @pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
    def test_started_without_standard_streams_it_works_as_well(
        self, run: Run, engine: Engine, folder: Path, add: Callable[..., None], closed: str
    ) -> None:
        add()
        printing = QUICK + "    print('handled', flush=True)\n    print('x', file=sys.stderr)\n"
        command = run(printing, "--once", shell=f"exec %s {closed}")

        assert command.ends() == 0
        assert positions(engine) == {"billing": 1}

    def test_a_program_that_configured_structlog_gets_the_lines(self, run: Run) -> None:
        source = QUICK + dedent(
            """
            import structlog
            structlog.configure(
                processors=[structlog.processors.KeyValueRenderer(key_order=["event"])]
            )
            """
        )
        theirs = run(source, "--once")
        assert theirs.ends() == 0
        assert any(line.startswith("event='drained' handled=0") for line in theirs.out)
        ours = run(source, "--once", "--log-format", "json")
        assert ours.ends() == 0
        assert ours.says("drained")

    def test_what_the_program_logs_and_warns_is_on_stderr(
        self, run: Run, add: Callable[..., None]
    ) -> None:
        add()
        command = run(
            """
            import logging
            import warnings

            @outbox.listener("billing", on="*")
            async def bill(event: Event) -> None:
                logging.getLogger("shop").warning("careful")
                warnings.warn("old")
            """,
            "--once",
        )

        assert command.ends() == 0
        logged, warned = [json.loads(line) for line in command.err]
        assert (logged["logger"], logged["event"]) == ("shop", "careful")
        assert warned["logger"] == "py.warnings"
        assert "UserWarning: old" in warned["event"]


@pytest.mark.anyio
async def test_a_consumer_leaves_no_thread_behind(dsn: str) -> None:
    outbox = Outbox()

    @outbox.listener("billing", on="*")
    async def bill(event: Event[Any]) -> None: ...

    await Consumer(outbox, dsn).drain()

    assert [each for each in threading.enumerate() if each.name.startswith("sa_outbox wat")] == []


def free_port() -> int:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port


class TestMonitor:
    def test_it_answers_from_the_start_until_the_end_of_the_process(
        self, run: Run, add: Callable[..., None], folder: Path
    ) -> None:
        add("order.placed", {"card": SECRET})
        command = run(SLOW, "--monitor-port", "0", "--metrics")
        port = command.says("monitor")["port"]
        eventually((folder / "begun").exists, within=30)

        eventually(lambda: asked(port, "/readyz")[0] == 200, within=30)
        command.signal(signal.SIGTERM)
        command.says("stopping")
        assert asked(port, "/readyz") == (
            503,
            '{"status": "not ok", "reasons": ["it is stopping"]}\n',
        )
        assert asked(port, "/healthz")[0] == 200
        status, numbers = asked(port, "/metrics")
        assert status == 200
        assert "sa_outbox_consumer_running 0.0" in numbers
        assert SECRET not in numbers

        (folder / "go").touch()
        assert command.ends() == 0
        assert (folder / "ended").exists()
        assert SECRET not in command.text


class TestObservers:
    WATCHING = (
        QUICK
        + """
class Watch:
    wants_batches = True

    def __call__(self, observation):
        if type(observation).__name__ == "BatchSettled":
            (here / "observed").write_text(observation.groups[0].event_type)
            raise RuntimeError("it is broken, too")

watch = Watch()
"""
    )

    def test_one_of_the_program_is_called_with_each_observation(
        self, run: Run, add: Callable[..., None], folder: Path
    ) -> None:
        add("order.placed", {})
        command = run(self.WATCHING, "--once", "--observer", "app:watch")

        assert command.ends() == 0
        assert (folder / "observed").read_text() == "order.placed"
        assert command.says("drained")["handled"] == 1

    def test_what_is_no_observer_is_wrong_usage(self, run: Run) -> None:
        command = run(QUICK, SA_OUTBOX_OBSERVERS="app:outbox")

        assert command.ends() == 2
        assert "app:outbox is not an observer but an Outbox" in command.text


def asked(port: int, path: str) -> tuple[int, str]:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


def test_a_changed_webhook_endpoint_does_not_end_the_process(run: Run, engine: Engine) -> None:
    """It stops its listeners and starts them again, which is not its end."""
    consumer = run("outbox.webhooks()\n" + dedent(QUICK), "--grace-period", "0.1")
    consumer.says("started")
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO outbox_endpoints (name, url) VALUES ('acme', 'https://a.example')")
        )
    eventually(lambda: len(consumer.lines("started")) == 2, within=30)

    with pytest.raises(subprocess.TimeoutExpired):
        consumer.process.wait(0.1 + MARGIN_SECONDS + 1)

    assert consumer.lines("ended by force") == []


def test_a_signal_wakes_a_consumer_that_sleeps_and_another_ends_it(
    run: Run, folder: Path, add: Callable[..., None]
) -> None:
    consumer = run(QUICK, "--idle-after", "0.2", "--grace-period", "0.1")
    consumer.says("asleep")
    add()
    consumer.signal(signal.SIGUSR1)
    exists(folder, "handled")
    eventually(lambda: len(consumer.lines("asleep")) == 2, within=30)

    consumer.signal(signal.SIGTERM)

    assert consumer.ends() == 0
    assert [line["by"] for line in consumer.lines("awake")] == ["wake", "stop"]
