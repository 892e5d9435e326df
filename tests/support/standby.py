"""A primary with a physical standby, and a failover that loses what was not replicated."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import URL, make_url

from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.embedded.binaries import find_binaries

from . import eventually
from .proxy import Proxy

if TYPE_CHECKING:
    from typing import Self

SETTINGS = {"max_connections": "100", "max_prepared_transactions": "10"}
"""A standby refuses to start with less than its primary has."""


def has_basebackup() -> bool:
    return os.access(find_binaries() / "pg_basebackup", os.X_OK)


class Pair:
    """``url`` leads to the primary; after ``fail_over``, to the standby that was promoted.

    The old primary goes on where nobody reaches it, as behind a network that broke: what it had
    and did not send is lost.
    """

    def __enter__(self) -> Self:
        # Not tmp_path: its parents are closed to the account that runs postgres for root.
        self._folder = Path(tempfile.mkdtemp(prefix="test_failover-"))
        self._folder.chmod(0o755)
        self._standby: subprocess.Popen[bytes] | None = None
        self._proxy: Proxy | None = None
        self._primary = EmbeddedPostgres(data=self._folder / "primary", settings=SETTINGS)
        try:
            self._primary.start()
            self._primary_url = make_url(self._primary.url())
            self._standby_url = self._start_standby()
            self._proxy = Proxy(self._primary_url)
            self._proxy.open()
        except BaseException:
            self.__exit__()
            raise
        self.url: URL = self._primary_url.set(host="127.0.0.1", port=self._proxy.port)
        return self

    def __exit__(self, *_: object) -> None:
        if self._proxy is not None:
            self._proxy.shut()
        if self._standby is not None:
            self._standby.send_signal(signal.SIGQUIT)
            self._standby.wait(20)
        self._primary.stop()
        shutil.rmtree(self._folder)

    def cut_replication(self) -> None:
        """What is committed from here on will be lost."""
        sent = self._ask(self._primary_url, "SELECT pg_current_wal_flush_lsn()")
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{sent}'"
        eventually(lambda: self._ask(self._standby_url, caught_up))
        self._ask(self._standby_url, "ALTER SYSTEM SET primary_conninfo = ''")
        self._ask(self._standby_url, "SELECT pg_reload_conf()")
        stopped = "SELECT count(*) = 0 FROM pg_stat_wal_receiver"
        eventually(lambda: self._ask(self._standby_url, stopped))

    def fail_over(self) -> None:
        assert self._proxy is not None
        self._proxy.shut()
        assert self._ask(self._standby_url, "SELECT pg_promote(true, 30)")
        self._proxy.lead_to(self._standby_url)
        self._proxy.open()

    def _start_standby(self) -> URL:
        place = self._folder / "standby"
        owner = self._primary.data.stat()
        source = self._primary.url()
        subprocess.run(
            [
                str(find_binaries() / "pg_basebackup"),
                f"--dbname={source}",
                f"--pgdata={place}",
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
        )
        account: dict[str, Any] = {}
        if os.geteuid() == 0:
            for each in (place, *place.rglob("*")):
                os.chown(each, owner.st_uid, owner.st_gid)
            account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        settings = SETTINGS | {"port": str(port), "unix_socket_directories": ""}
        options = [word for name in settings for word in ("-c", f"{name}={settings[name]}")]
        # The primary's own program: the account can reach that.
        program = Path(f"/proc/{self._primary.pid}/exe").readlink()
        self._standby = subprocess.Popen(
            [program, "-D", str(place), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **account,
        )
        url = self._primary_url.set(port=port)
        eventually(lambda: self._answers(url), within=60)
        return url

    def _answers(self, url: URL) -> bool:
        try:
            return bool(self._ask(url, "SELECT pg_is_in_recovery()"))
        except psycopg.OperationalError:
            return False

    def _ask(self, url: URL, statement: str) -> Any:
        address = url.render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]
