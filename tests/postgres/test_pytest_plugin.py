"""The pytest plugin, as a project uses it: in a process of its own, with the plugins it chose."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from sa_outbox.testing.server import ADDRESS_VARIABLE
from tests.docs.test_code_blocks import ROOT, blocks

pytest_plugins = ["pytester"]

SHOP = """
from datetime import timedelta

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sa_outbox import Event, Outbox, RetryPolicy

outbox = Outbox()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


def create(connection: Connection) -> None:
    Base.metadata.create_all(connection)
    connection.execute(Order.__table__.insert(), {"id": 1000})


@outbox.listener("billing", on="order.*", retry=RetryPolicy(schedule=[timedelta(days=3)]))
async def bill(event: Event, session: AsyncSession) -> None:
    if event.payload == "broken":
        raise ValueError("declined")
    session.add(Order(id=event.payload))


outbox.cron("0 9 1 1 *", "order.yearly", 9, time_zone="UTC")
"""
SYNC = """
from sqlalchemy import func, select

from shop import Order, outbox


def test_a_commit_is_seen(outbox_session, outbox_events):
    outbox_session.add(Order(id=1))
    outbox_session.add_event("order.placed", 2)
    outbox_session.commit()
    assert outbox_events.expect("order.placed").state == "committed"
    assert outbox_session.scalar(select(func.count(Order.id))) == 2


def test_nothing_of_the_other_test_is_left(outbox_connection, outbox_events):
    assert outbox_connection.scalar(select(func.count()).select_from(outbox.tables.outbox)) == 0
    assert outbox_connection.scalars(select(Order.id).order_by(Order.id)).all() == [1000]
    assert len(outbox_events) == 0


def test_what_is_committed_is_drained(outbox_engine, outbox_drain, outbox_clock):
    with outbox.sessionmaker(outbox_engine).begin() as session:
        session.add_event("order.placed", "broken")
    first = outbox_drain(outbox_engine).one("billing")
    outbox_clock.advance(days=3)
    second = outbox_drain(outbox_engine).one("billing")
    assert (first.outcome, second.outcome, second.attempt) == ("retry", "dead", 2)


def test_a_database_is_a_copy_for_each_test(outbox_engine):
    with outbox_engine.connect() as connection:
        assert connection.scalars(select(Order.id).order_by(Order.id)).all() == [1000]
        assert connection.scalar(select(func.count()).select_from(outbox.tables.outbox)) == 0
"""
ASYNC = """
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from shop import Order, outbox

pytestmark = pytest.mark.{mark}


async def test_handlers_are_called(outbox_async_session, outbox_deliver, outbox_events):
    outbox_async_session.add_event("order.placed", 2)
    await outbox_async_session.commit()
    (await outbox_deliver(outbox_async_session)).expect_done()
    orders = await outbox_async_session.scalars(select(Order.id).order_by(Order.id))
    assert orders.all() == [2, 1000]
    assert outbox_events.types == ["order.placed"]


async def test_a_cron_ticks(outbox_async_engine, outbox_drain, outbox_clock):
    await outbox_drain(outbox_async_engine)
    outbox_clock.move_to(datetime(datetime.now(UTC).year + 1, 1, 1, 9, tzinfo=UTC))
    deliveries = await outbox_drain(outbox_async_engine)
    assert deliveries.one("billing").event_type == "order.yearly"
    async with outbox_async_engine.connect() as connection:
        assert (await connection.scalars(select(Order.id).order_by(Order.id))).all() == [9, 1000]


@pytest.fixture
def greeting(outbox_async_connection):
    return outbox_async_connection


async def test_a_connection_is_there_for_fixtures(greeting):
    assert (await greeting.scalars(select(Order.id).order_by(Order.id))).all() == [1000]
"""
PLAIN = "[pytest]\npythonpath = .\nfilterwarnings = error\n"
CONFIGURED = f"{PLAIN}sa_outbox = shop:outbox\nsa_outbox_tables = shop:create\n"
OVERRIDDEN = """
import pytest

import shop


@pytest.fixture(scope="session")
def outbox_app():
    return shop.outbox


@pytest.fixture(scope="session")
def outbox_tables():
    return shop.create
"""
FAILING = """
import pytest


@pytest.mark.asyncio
async def test_wrong(outbox_async_session, outbox_deliver, outbox_events):
    outbox_async_session.add_event("order.placed", "broken")
    await outbox_deliver(outbox_async_session)
    outbox_events.expect("order.paid")


def test_not_async(outbox_async_session): ...
"""

# An editable install that is older than the entry point does not have it.
IS_INSTALLED = bool(entry_points(group="pytest11", name="sa_outbox"))


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    plugin = () if IS_INSTALLED else ("-p", "sa_outbox.testing.plugin")
    return project.runpytest_subprocess("-p", "no:randomly", *plugin, *options)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini(CONFIGURED)
    pytester.makepyfile(shop=SHOP)
    return pytester


def test_processes_share_a_server_that_is_started_and_stopped(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    started = project.path / "started"
    project.makeconftest(
        f"""
        import pytest
        from sa_outbox.embedded import EmbeddedPostgres

        start = EmbeddedPostgres.start

        def noted(self):
            with open({str(started)!r}, "a") as file:
                file.write("started ")
            start(self)

        EmbeddedPostgres.start = noted

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        """
    )
    project.makepyfile(test_sync=SYNC, test_async=ASYNC.format(mark="anyio"))

    result = run(project, "-n", "2", "-p", "no:asyncio")

    result.assert_outcomes(passed=7)
    assert started.read_text() == "started "
    assert not list(project.path.rglob("server.json"))


BACKEND = """
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
BY_ANYIO = ("-p", "no:asyncio")
BY_PYTEST_ASYNCIO = ("-p", "no:anyio", "-o", "asyncio_default_fixture_loop_scope=function")
PROCESSES = {"plain": ("-p", "no:xdist"), "xdist": ("-n", "2")}


@pytest.mark.long
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize(
    ("mark", "options"),
    [("anyio", BY_ANYIO), ("asyncio", BY_PYTEST_ASYNCIO)],
    ids=["anyio", "pytest-asyncio"],
)
def test_whoever_runs_async_tests_in_one_process_or_in_several(
    mark: str,
    options: tuple[str, ...],
    processes: str,
    project: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    server_url: str,
) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, server_url)
    if mark == "anyio":
        project.makeconftest(BACKEND)
    project.makepyfile(test_sync=SYNC, test_async=ASYNC.format(mark=mark))

    result = run(project, *options, *PROCESSES[processes])

    result.assert_outcomes(passed=7)
    assert ("2 workers" in result.stdout.str()) == (processes == "xdist")


def test_pytest_asyncio_and_what_a_failure_shows(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    pytest.importorskip("pytest_asyncio")
    monkeypatch.setenv(ADDRESS_VARIABLE, server_url)
    (project.path / "inner").mkdir()
    project.makeini(f"{PLAIN}asyncio_default_fixture_loop_scope = function")
    project.makepyfile(
        **{
            "inner/conftest": OVERRIDDEN,
            "inner/test_a": ASYNC.format(mark="asyncio"),
            "inner/test_b": ASYNC.format(mark='asyncio(loop_scope="module")'),
            "inner/test_c": FAILING,
            "test_d": "def test_without_an_outbox(outbox_session): ...",
        }
    )

    result = run(project)

    result.assert_outcomes(passed=6, failed=1, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*an async session needs an async test*",
            '>*outbox_events.expect("order.paid")',
            "E*expected one event order.paid, found 0",
            "E*order.placed 'broken' (written)",
            "*ValueError: declined",
            "*which Outbox? Set sa_outbox*",
        ]
    )
    result.stdout.no_fnmatch_line("*def expect(*")


def test_a_program_without_an_outbox_has_a_server_for_its_tests(pytester: pytest.Pytester) -> None:
    """As docs/testing.md shows it."""
    (shown,) = [
        "\n".join(each.lines)
        for each in blocks(ROOT / "docs" / "testing.md")
        if "(outbox_server_url:" in "\n".join(each.lines)
    ]
    pytester.makeini(PLAIN)
    pytester.makepyfile(test_notes=shown)

    run(pytester, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_a_project_that_uses_no_fixture_imports_nothing() -> None:
    """Of what takes time: SQLAlchemy, anyio's backend, a driver, PostgreSQL."""
    program = (
        "import sys\nimport pytest\nbefore = set(sys.modules)\nimport sa_outbox.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [
        "sa_outbox",
        "sa_outbox._version",
        "sa_outbox.testing",
        "sa_outbox.testing.plugin",
    ]
