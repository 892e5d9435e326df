"""What every test can ask for: a PostgreSQL, databases on it, the way Hypothesis searches, and a
line at the end of the run."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.drains import watch_drains
from tests.support.introspection import remember_types
from tests.support.notices import PROPERTY, Notice, show_notices
from tests.support.server import TestServer, temporary_database
from tests.support.spreading import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from _pytest.terminal import TerminalReporter
    from sqlalchemy import URL

for _profile, _examples in (("default", 100), ("fast", 20), ("long", 2000)):
    settings.register_profile(
        _profile,
        # A database or a busy machine makes single examples slow; that is no finding.
        deadline=None,
        max_examples=_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_SERVER = pytest.StashKey[TestServer]()


def pytest_configure(config: pytest.Config) -> None:
    # Under nohup, and behind an ampersand, they are ignored, and so they would be in the processes
    # whose end by them is tested.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Only a worker of pytest-xdist has workerinput: there the controller owns the server.
    address: str | None = getattr(config, "workerinput", {}).get("server_url")
    config.stash[_SERVER] = TestServer(address)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controller of pytest-xdist, before each worker starts."""
    node.workerinput["server_url"] = node.config.stash[_SERVER].url()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """After pytest-randomly has shuffled them: long tests are spread over processes and time."""
    yield
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [each for each in items if each.get_closest_marker("long")]
    short = [each for each in items if not each.get_closest_marker("long")]
    items[:] = spread(short, long, processes)


def pytest_collection_finish() -> None:
    """Thousands of tests stay alive to the end. Nobody needs to look through them for garbage
    again and again: it would take a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    show_notices(terminalreporter)


def pytest_unconfigure(config: pytest.Config) -> None:
    if server := config.stash.get(_SERVER, None):
        server.stop()


@pytest.fixture(scope="session")
def server_url(pytestconfig: pytest.Config) -> str:
    """A superuser's address for libpq, of the maintenance database."""
    return pytestconfig.stash[_SERVER].url()


@pytest.fixture(scope="session")
def database_url(server_url: str) -> Iterator[URL]:
    """An empty database of this worker; set the driver: ``.set(drivername=...)``."""
    label = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with temporary_database(server_url, label) as url:
        yield url


@pytest.fixture
def new_database(server_url: str) -> Iterator[Callable[[], URL]]:
    """Makes further empty databases, dropped after the test."""
    with ExitStack() as databases:
        yield lambda: databases.enter_context(temporary_database(server_url, "new"))


@pytest.fixture
def notice(record_property: Callable[[str, object], None]) -> Notice:
    """Adds a line to the end of the run."""
    return lambda text: record_property(PROPERTY, text)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The drivers and SQLAlchemy's asyncio do not run under trio."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _drains_hold_nothing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        watch_drains(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _types_are_asked_for_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        remember_types(patch)
        yield
