"""The previous release beside this one, on one database, as while a deploy goes on.

The previous release is the highest version among the tags behind HEAD, or what
``SA_OUTBOX_TEST_PREVIOUS`` names (any revision); the end of the run says which. Without one it is
this tree: then what is tested is that a wheel in an environment of its own and the tree can share
the work, and that this file is ready for the second release.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL

from tests.support import eventually
from tests.support.notices import Notice
from tests.support.packages import ROOT, Environment, build, environment, run
from tests.support.revisions import git, previous_release

from .conftest import Packages

APP = Path(__file__).parent
TOGETHER = "both in one fleet"
AFTERWARDS = "after the last of the previous release"
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ORDERS = 100
TABLES = """
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, phase text NOT NULL, release text NOT NULL
);
CREATE TABLE seen (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, listener text NOT NULL,
    order_id bigint NOT NULL, key text NOT NULL, phase text NOT NULL, release text NOT NULL
)
"""


def previous_wheel(packages: Packages, revision: str | None, folder: Path) -> Path:
    if revision is None:
        return packages.wheel
    with tarfile.open(fileobj=BytesIO(git(ROOT, "archive", revision))) as archive:
        archive.extractall(folder / "tree", filter="data")
    return build(folder / "tree", "wheel", folder)


@dataclass(frozen=True)
class Release:
    """What runs the program: an interpreter, and the package that it imports."""

    python: Path
    package: str
    variables: dict[str, str]

    def produce(self, phase: str, orders: int = ORDERS) -> None:
        run(self.python, "upgrade_app.py", phase, str(orders), cwd=APP, **self.variables)

    def command(self, *words: str) -> None:
        run(self.python, "-m", "sa_outbox", *words, cwd=APP, **self.variables)

    @contextmanager
    def consumer(self) -> Iterator[None]:
        """Ended by SIGTERM, which must end well."""
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        words = [str(self.python), "-m", "sa_outbox.consume", "upgrade_app:outbox"]
        process = subprocess.Popen(words, cwd=APP, env=clean | self.variables)
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Database:
    """What the program has written there."""

    connection: psycopg.Connection

    def _rows(self, question: str, phase: str | None = None) -> list[tuple[object, ...]]:
        return self.connection.execute(question.encode(), {"phase": phase}).fetchall()

    def all_is_seen(self) -> bool:
        """Each order by each listener, at least once."""
        return not self._rows(
            "SELECT orders.id, listener FROM orders,"
            " unnest(ARRAY['in_order', 'shared']) AS listener"
            " EXCEPT SELECT order_id, listener FROM seen"
        )

    def releases(self, phase: str, listener: str = "%") -> set[str]:
        """Those that handled orders of the phase."""
        return {
            str(release)
            for release, seen_by in self._rows(
                "SELECT DISTINCT release, listener FROM seen WHERE phase = %(phase)s", phase
            )
            if listener in ("%", seen_by)
        }

    def twice(self) -> list[tuple[object, ...]]:
        return self._rows("SELECT listener, order_id FROM seen GROUP BY 1, 2 HAVING count(*) > 1")

    def out_of_order(self) -> list[tuple[object, ...]]:
        """Orders of a key that were seen after a later one."""
        return self._rows(
            "SELECT order_id FROM (SELECT order_id, lag(order_id)"
            " OVER (PARTITION BY key ORDER BY number) AS before"
            " FROM seen WHERE listener = 'in_order') AS seen WHERE order_id < before"
        )


@pytest.fixture
def installed(packages: Packages, tmp_path: Path, notice: Notice) -> Environment:
    previous = previous_release(ROOT)
    notice(f"rolling upgrade, the previous release: {previous.about}")
    wheel = previous_wheel(packages, previous.revision, tmp_path)
    return environment(tmp_path / "environment", wheel)


def _plain(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def url(new_database: Callable[[], URL]) -> URL:
    return new_database()


@pytest.fixture
def releases(installed: Environment, url: URL) -> tuple[Release, Release]:
    """The previous one and this one."""
    variables = {"SA_OUTBOX_DATABASE_URL": _plain(url)}
    where = "import sa_outbox, pathlib; print(pathlib.Path(sa_outbox.__file__).parents[1])"
    previous = Release(installed.python, installed.run("-c", where).strip(), variables)
    this = Release(Path(sys.executable), str(ROOT), variables | {"PYTHONPATH": str(ROOT)})
    assert previous.package != this.package
    return previous, this


def test_previous_and_new_producers_and_consumers_share_one_database(
    releases: tuple[Release, Release], url: URL
) -> None:
    """Nothing is lost, nothing is done twice, and no key is out of order."""
    previous, this = releases
    previous.command("migrate")
    with psycopg.connect(_plain(url), autocommit=True) as connection:
        connection.execute(TABLES)
        database = Database(connection)

        with this.consumer():
            previous.produce("previous to this")
            eventually(database.all_is_seen)
        with previous.consumer():
            this.produce("this to previous")
            eventually(database.all_is_seen)
        this.command("migrate")
        with ExitStack() as fleet:
            with previous.consumer():
                fleet.enter_context(this.consumer())
                eventually(lambda: both_take_part(previous, this, database), within=60)
            previous.produce(AFTERWARDS)
            this.produce(AFTERWARDS)
            eventually(database.all_is_seen)

        assert database.releases("previous to this") == {this.package}
        assert database.releases("this to previous") == {previous.package}
        assert database.releases(AFTERWARDS) == {this.package}
        assert database.twice() == []
        assert database.out_of_order() == []


def both_take_part(previous: Release, this: Release, database: Database) -> bool:
    """In the queue, where every process has a share; both produce until it is so."""
    previous.produce(TOGETHER, 10)
    this.produce(TOGETHER, 10)
    return database.releases(TOGETHER, "shared") == {previous.package, this.package}
