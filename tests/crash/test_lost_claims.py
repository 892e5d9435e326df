"""A claim that the server lost: its process survives, and wakes up when others have claimed more.

The claim of an event does not wait for the disk, and the server crashes in the same moment. Then
its process is suspended, so that another one is the first to come back.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import queue_scene, scene
from tests.crash.fleet import Member, fleet
from tests.crash.restarting import Restarting, restarting_server
from tests.support import eventually

APP = "tests.crash.lost_claims_app:outbox"
ROUNDS = 6
LEASE = 10.0
"""Seconds; a process that is suspended with a lock keeps it for as long."""
RANGES = "SELECT count(*) FROM outbox_ranges"
UNLOGGED_IDS = "SELECT log_cnt FROM outbox_id_seq"
"""How many more ids can be drawn before the sequence is logged. A crash skips these."""


@pytest.fixture
def restarting() -> Iterator[Restarting]:
    """Little is written behind its back: what no COMMIT waits for is lost in most crashes."""
    with restarting_server(wal_writer_delay="10s", max_wal_size="1GB") as server:
        yield server


class Pair:
    """Two processes of one queue."""

    def __init__(self, server: Restarting, pid_file: Path, one: Member, other: Member) -> None:
        self._server = server
        self._dsn = server.dsn
        self._pid_file = pid_file
        self._one, self._other = one, other
        self.lost = 0
        """How many claims."""

    def lose_a_claim(self) -> None:
        """That of one process; the other claims its event and three more. Then the first one is
        offered what comes next."""
        self._other.signal(signal.SIGSTOP)
        self._write_up_to_the_last_logged_id()
        self._pid_file.write_text(str(self._server.pid))
        scene.write(self._dsn, then="cut")
        eventually(lambda: not self._pid_file.read_text(), within=30)
        self._one.signal(signal.SIGSTOP)
        self._server.recover()
        self.lost += scene.one(self._dsn, RANGES) == 0

        scene.write(self._dsn, 3)
        self._wake(self._other)
        self._one.lines.clear()
        eventually(self._is_all_claimed, within=60)
        self._wake(self._one)
        eventually(lambda: queue_scene.is_settled(self._dsn), within=60)
        eventually(lambda: self._one.said("listening"), within=60)
        self._other.signal(signal.SIGSTOP)
        self._write_and_wait()
        self._other.signal(signal.SIGCONT)
        self._write_and_wait()

    def _wake(self, member: Member) -> None:
        member.signal(signal.SIGCONT)

    def _is_all_claimed(self) -> bool:
        return scene.one(self._dsn, ALL_CLAIMED) is True

    def _write_up_to_the_last_logged_id(self) -> None:
        """What comes after the crash has to follow without a hole: else it is not offered."""
        while scene.one(self._dsn, UNLOGGED_IDS) != 1:
            self._write_and_wait()

    def _write_and_wait(self) -> None:
        scene.write(self._dsn)
        eventually(lambda: queue_scene.is_settled(self._dsn), within=60)


ALL_CLAIMED = (
    "SELECT last_processed_id = (SELECT max(id) FROM outbox) AND gaps = '[]' FROM outbox_listeners"
)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_others_claimed_instead_is_handled_once(
    restarting: Restarting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    pid_file.touch()
    monkeypatch.setenv("LOSING_SERVER", str(pid_file))
    dsn = restarting.dsn
    with fleet(APP, dsn, lease_duration=LEASE) as members:
        one, other = members.start(), members.start()
        eventually(lambda: one.said("listening") and other.said("listening"), within=90)
        scene.write(dsn, 3)
        eventually(lambda: queue_scene.is_settled(dsn), within=30)
        pair = Pair(restarting, pid_file, one, other)
        for _ in range(ROUNDS):
            pair.lose_a_claim()

    assert pair.lost > 0, "the server has written each claim for another reason: nothing is shown"
    queue_scene.assert_effects_exactly_once(dsn, "queue")
    assert scene.dead_letters(dsn) == []
