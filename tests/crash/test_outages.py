"""The server goes away, or its network does: the consumers go on by themselves, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.crash import queue_scene, scene, seen
from tests.crash.fleet import fleet
from tests.crash.restarting import Restarting, restarting_server
from tests.support import eventually
from tests.support.proxy import Proxy

APP = "tests.crash.effects_app:outbox"
QUEUES = "tests.crash.queue_app:outbox"
LISTENERS = ("by_key", "in_total", "in_batches")


@pytest.fixture
def restarting() -> Iterator[Restarting]:
    with restarting_server() as server:
        yield server


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_server_that_restarts_under_load_costs_no_event_and_doubles_no_effect(
    restarting: Restarting,
) -> None:
    dsn = restarting.dsn
    with fleet(APP, dsn, lease_duration=3) as members:
        both = members.start(), members.start()
        eventually(lambda: all(each.said("listening") for each in both), within=20)
        with scene.writing(dsn):
            for _ in range(3):
                before = scene.one(dsn, "SELECT count(*) FROM seen")
                assert isinstance(before, int)
                eventually(
                    lambda: scene.one(dsn, "SELECT count(*) FROM seen") >= before + 50,  # type: ignore[operator]  # noqa: B023 - a count; called at once
                    within=40,
                )
                restarting.crash()
        eventually(lambda: scene.has_seen_all(dsn, *LISTENERS), within=40)

        assert all(member.is_alive for member in members.members)
    scene.assert_each_effect_once(dsn, *LISTENERS)
    assert scene.dead_letters(dsn) == []


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_server_that_restarts_under_load_costs_no_event_of_a_queue_and_doubles_no_effect(
    restarting: Restarting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_NOTES", str(tmp_path))
    dsn, count = restarting.dsn, "SELECT count(*) FROM seen"
    with fleet(QUEUES, dsn, lease_duration=3) as members:
        both = members.start(), members.start()
        eventually(lambda: all(each.said("listening") for each in both), within=40)
        with scene.writing(dsn):
            for _ in range(3):
                before = scene.one(dsn, count)
                assert isinstance(before, int)
                eventually(
                    lambda: scene.one(dsn, count) >= before + 50,  # type: ignore[operator]  # noqa: B023 - a count; called at once
                    within=40,
                )
                restarting.crash()
        eventually(lambda: queue_scene.is_settled(dsn), within=60)

        assert all(member.is_alive for member in members.members)
    queue_scene.assert_effects_exactly_once(dsn, "one_by_one", "in_batches")
    handled = queue_scene.read_notes(tmp_path, "plain")
    assert handled.keys() == {each.position for each in seen.read_log(dsn)}
    assert scene.dead_letters(dsn) == []


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_listen_connection_that_is_swallowed_is_noticed_and_made_again(dsn: str) -> None:
    scene.prepare(dsn)
    with Proxy(make_url(dsn)) as proxy, fleet(APP, dsn, probe_interval=1, probe_timeout=1) as all_:
        proxy.open()
        listen = make_url(dsn).set(host="127.0.0.1", port=proxy.port)
        address = listen.render_as_string(hide_password=False)
        member = all_.start(SA_OUTBOX_LISTEN_URL=address)
        eventually(lambda: member.said("listening"), within=20)
        proxy.best_effort()
        scene.write(dsn, 5)
        # Far less than the 30 s after which a consumer that believes to listen would look.
        eventually(lambda: scene.has_seen_all(dsn, *LISTENERS), within=15)
        eventually(lambda: member.said("database away"), within=15)
        member.lines.clear()
        proxy.pass_on()
        eventually(lambda: member.said("listening"), within=20)
        scene.write(dsn, 5)
        eventually(lambda: scene.has_seen_all(dsn, *LISTENERS), within=15)

    scene.assert_each_effect_once(dsn, *LISTENERS)
