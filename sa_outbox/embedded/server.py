"""EmbeddedPostgres: the program's handle on its server."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from sa_outbox.errors import EmbeddedError

from .account import Account, can_run, choose_account, temporary_base
from .binaries import find_binaries
from .link import Facts, Link

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_OURS = ("data_directory", "listen_addresses", "port", "unix_socket_directories")

_DEFAULTS: Final[Mapping[str, str]] = {
    "lc_messages": "C",
    "max_connections": "200",
    "max_prepared_transactions": "50",
    "shared_buffers": "64MB",
    "unix_socket_permissions": "0700",
}
_NOT_SAFE_AND_FAST: Final[Mapping[str, str]] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


class EmbeddedPostgres:
    """A PostgreSQL server that lives no longer than this program.

    ``data``: a folder to keep, created if it is missing and reused at the next start, with the same
    password. None: a temporary folder, removed at the end; such a server does not wait for the
    disk. ``settings``: as in postgresql.conf; they override the defaults here and ``ALTER SYSTEM``.
    ``port``: None for a free one.

    For root, postgres runs as the owner of the data folder or as ``nobody``, who must be able to
    reach that folder.
    """

    host: Final = "127.0.0.1"

    def __init__(
        self,
        *,
        data: Path | None = None,
        settings: Mapping[str, str] = {},
        port: int | None = None,
    ) -> None:
        for name, value in settings.items():
            _check_setting(name, value)
        self._kept = None if data is None else Path(data).absolute()
        fast = _NOT_SAFE_AND_FAST if data is None else {}
        self._settings = {**_DEFAULTS, **fast, **settings}
        self._port = port
        self._link: Link | None = None
        self._owner = 0
        self._binaries = Path()
        self._version = ""

    def __repr__(self) -> str:
        if self._link is None or self._link.facts is None:
            return "<EmbeddedPostgres, not running>"
        return f"<EmbeddedPostgres {self._version} at {self.host}:{self.port}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and return when it accepts connections. Does nothing if it is
        running."""
        if self._link is not None:
            return
        self._binaries = find_binaries()
        self._version = _version_of(self._binaries)
        plan = self._plan(choose_account(self._kept))
        self._owner = os.getpid()
        self._link = Link()
        _servers.add(self)
        atexit.register(self.stop)
        try:
            self._link.submit(plan)
        except BaseException:
            self.stop()
            raise

    def _plan(self, account: Account | None) -> dict[str, object]:
        return {
            "program": os.getpid(),
            "binaries": str(self._binaries),
            "version": self._version,
            "copy_binaries": not can_run(self._binaries / "postgres", account),
            "base": str(temporary_base(account)),
            "data": None if self._kept is None else str(self._kept),
            "account": account and account.name,
            "uid": account and account.uid,
            "gid": account and account.gid,
            "port": self._port,
            "settings": self._settings,
        }

    def stop(self) -> None:
        """Stop the server and remove what was temporary. Does nothing if it is not running, or in a
        fork."""
        # At the end of a fork atexit handlers run too; the server does not belong to the fork.
        if self._link is None or os.getpid() != self._owner:
            return
        link, self._link = self._link, None
        atexit.unregister(self.stop)
        _servers.discard(self)
        link.end()

    def wait(self) -> None:
        """Return when the server has ended, for whatever reason."""
        if self._link is not None:
            self._link.wait()

    def url(self, driver: str | None = None, *, database: str = "postgres") -> str:
        """The URL for a SQLAlchemy driver, or for libpq; contains the password."""
        scheme = f"postgresql+{driver}" if driver else "postgresql"
        facts = self._running()
        place = f"{self.host}:{facts.port}/{quote(database, safe='')}"
        return f"{scheme}://postgres:{facts.password}@{place}"

    def create_database(self, name: str, *, driver: str | None = None) -> str:
        """Create an empty database and return its URL."""
        facts = self._running()
        createdb = self._binaries / "createdb"
        if not os.access(createdb, os.X_OK):
            raise EmbeddedError(f"this PostgreSQL ships no createdb in {self._binaries}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        answer = subprocess.run(  # noqa: S603 - a list, no shell between; "--" ends the options
            [str(createdb), f"--host={self.host}", f"--port={facts.port}", "--", name],
            env=environment | {"PGUSER": "postgres", "PGPASSWORD": facts.password},
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise EmbeddedError(f"can't create the database {name!r}: {answer.stderr.strip()}")
        return self.url(driver, database=name)

    @property
    def port(self) -> int:
        """The one it listens on. Raises :class:`EmbeddedError` if it is not running."""
        return self._running().port

    @property
    def pid(self) -> int:
        """The process of postgres itself, to send it signals in a test."""
        return self._running().pid

    @property
    def version(self) -> str:
        """Such as ``"18.1"``."""
        self._running()
        return self._version

    @property
    def data(self) -> Path:
        """The folder given, or the temporary one. The cluster is in its folder ``pgdata``."""
        return Path(self._running().home)

    @property
    def socket_folder(self) -> Path:
        """A private folder with the unix socket, for libpq's ``host``."""
        return Path(self._running().run)

    @property
    def log(self) -> Path:
        """The server's log; gone after ``stop``."""
        return Path(self._running().run) / "server.log"

    def _running(self) -> Facts:
        if self._link is None or self._link.facts is None:
            raise EmbeddedError("the server is not running: call start(), or use it in a with")
        return self._link.facts

    def _let_go(self) -> None:
        if self._link is not None:
            self._link.forget()


_servers: weakref.WeakSet[EmbeddedPostgres] = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(_servers):
        server._let_go()  # noqa: SLF001 - one module, one secret


os.register_at_fork(after_in_child=_after_fork)


def _check_setting(name: str, value: str) -> None:
    if not _SETTING.fullmatch(name):
        raise EmbeddedError(f"{name!r} is not the name of a setting")
    if name.lower() in _OURS:
        raise EmbeddedError(f"{name} can't be set: the embedded server decides it")
    if not isinstance(value, str):
        raise EmbeddedError(f"the value of {name} must be a str, not {value!r}")
    if "\0" in value:
        raise EmbeddedError(f"the value of {name} holds a NUL")


def _version_of(binaries: Path) -> str:
    answer = subprocess.run(  # noqa: S603 - what find_binaries found
        [str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=False
    )
    found = re.search(r"\) (\d+(?:\.\d+)?)", answer.stdout)
    if answer.returncode != 0 or found is None:
        raise EmbeddedError(f"{binaries / 'postgres'} does not work: {answer.stderr.strip()}")
    return found[1]
