"""Webhook endpoints in the database: commands, and a consumer that serves them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Outbox
from sa_outbox.consumer.services import endpoints as serving
from sa_outbox.consumer.shared import relay_backoff
from sa_outbox.errors import ConfigError, NotFinished
from sa_outbox.observe import (
    AttemptFailed,
    DatabaseAway,
    DatabaseBack,
    DeadLettered,
    EndpointDisabled,
    EndpointLeftOut,
    LeaseClaimed,
    ListenerOrphaned,
    RelayAway,
)
from sa_outbox.operations import sealing
from sa_outbox.sql.listener import endpoints as endpoint_statements
from sa_outbox.webhooks import verify
from tests.support import comes_true
from tests.support.receiver import LOCAL, Command, Receiver, endpoints_command, receiving, secret_of

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
NAMED, NOT_SET = "SA_OUTBOX_WEBHOOK_ACME", "SA_OUTBOX_WEBHOOK_NOT_SET"


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(relay_backoff, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv(sealing.VARIABLE, sealing.new_key())


@pytest.fixture
def command(migrated_url: URL, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Command:
    url = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", url)
    return endpoints_command


async def test_an_endpoint_that_is_added_gets_what_is_committed_then(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver, consuming(outbox) as running:
        producer.add(0)
        result = await command("add", "acme", receiver.url, "--on", "order.*", "--why", "asked for")
        secret = await secret_of(result)
        await comes_true(lambda: database.value("SELECT count(*) FROM outbox_listeners") == 1)

        producer.add(1, 2, key="a")
        await comes_true(lambda: len(receiver.got) == 2)

        assert receiver.numbers(secret) == [1, 2]
        assert running.recorder.of(ListenerOrphaned) == []
    assert secret not in str(database.rows("SELECT * FROM outbox_endpoints"))
    (record,) = database.rows("SELECT action, listener, detail FROM outbox_audit")
    assert record[:2] == ("endpoint added", "webhook:acme")
    assert record.detail["why"] == "asked for"


async def test_a_change_that_commits_after_a_later_one_is_noticed_too(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, engine: Engine
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    enable = endpoint_statements.enable(outbox.tables)
    async with receiving() as early, receiving() as late:
        await command("add", "early", early.url, "--on", "*")
        await command("disable", "early")
        async with consuming(outbox) as running:
            with engine.begin() as slow:
                slow.execute(enable, {"name": "early"})
                await command("add", "late", late.url, "--on", "*")
                await comes_true(lambda: len(running.recorder.of(LeaseClaimed)) >= 1)
            await comes_true(lambda: len(running.recorder.of(LeaseClaimed)) >= 3)

            producer.add(1)
            await comes_true(lambda: len(early.got) == len(late.got) == 1)


async def test_while_its_secret_is_changed_both_verify(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        old = await secret_of(await command("add", "acme", receiver.url, "--on", "*"))
        async with consuming(outbox):
            producer.add(1)
            await comes_true(lambda: len(receiver.got) == 1)
            new = await secret_of(await command("rotate", "acme"))
            await comes_true(lambda: _signatures(receiver, producer) == 2)
            headers, body = receiver.got[-1]
            assert verify(body, headers, old) == verify(body, headers, new)
            await command("rotate", "acme", "--finish")
            await comes_true(lambda: _signatures(receiver, producer) == 1)
            verify(receiver.got[-1][1], receiver.got[-1][0], new)


def _signatures(receiver: Receiver, producer: Producer) -> int:
    """Of the last message; another one is sent, for the next look."""
    found = len(receiver.got[-1][0]["webhook-signature"].split())
    producer.add(9)
    return found


async def test_one_that_is_gone_is_disabled_and_its_event_waits(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver, receiving() as other:
        secret = await secret_of(await command("add", "acme", receiver.url, "--on", "*"))
        await command("add", "other", other.url, "--on", "*")
        receiver.status = 410
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(running.recorder.of(EndpointDisabled)) == 1)
            await comes_true(lambda: len(other.got) == 1)
            producer.add(2)
            await comes_true(lambda: len(other.got) == 2)
            assert len(receiver.got) == 1
            listed = await command("list")
            assert "it answered 410" in listed.output

            receiver.status = 204
            receiver.got.clear()
            assert "enabled" in (await command("enable", "acme")).output
            await comes_true(lambda: receiver.numbers(secret) == [1, 2])

            assert running.recorder.of(DeadLettered) == []
            assert running.recorder.of(ListenerOrphaned) == []


async def test_one_whose_410_is_retried_by_choice_stays_enabled(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        await command("add", "acme", receiver.url, "--on", "*", "--retry-410")
        receiver.status = 410
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(running.recorder.of(AttemptFailed)) == 1)
            receiver.status = 204
            producer.add(2)
            await comes_true(lambda: len(receiver.got) == 2)

            assert running.recorder.of(EndpointDisabled) == []
            assert running.recorder.of(DeadLettered) == []
    (waits,) = database.rows("SELECT state, attempts FROM outbox_deliveries")
    assert (waits.state, waits.attempts) == ("parked", 1)


async def test_one_that_is_enabled_before_the_consumer_has_noticed_stays_enabled(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it reads the endpoints again it knows of the 410 only, and its next try is soon."""
    monkeypatch.setattr(serving, "REFRESH_SECONDS", 3.0)
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        secret = await secret_of(await command("add", "acme", receiver.url, "--on", "*"))
        receiver.status = 410
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(running.recorder.of(EndpointDisabled)) == 1)
            receiver.status = 204
            receiver.got.clear()
            assert "enabled" in (await command("enable", "acme")).output
            tries = len(running.recorder.of(RelayAway))
            await comes_true(lambda: len(running.recorder.of(RelayAway)) > tries)
            await comes_true(lambda: receiver.numbers(secret) == [1])

        assert len(running.recorder.of(EndpointDisabled)) == 1


async def test_one_whose_secret_can_not_be_had_is_left_out_and_the_others_are_served(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        await command("add", "poor", receiver.url, "--on", "*", "--secret-env", NOT_SET)
        await command("add", "rich", receiver.url, "--on", "*")
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(receiver.got) == 1)
            (left_out,) = running.recorder.of(EndpointLeftOut)
            assert left_out.endpoint == "poor"
            assert NOT_SET in left_out.why


async def test_an_endpoint_of_a_tenant_gets_nothing_of_others(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        result = await command("add", "acme", receiver.url, "--on", "*", "--tenant", "acme")
        secret = await secret_of(result)
        async with consuming(outbox):
            producer.add(1, tenant="bolt")
            producer.add(2, tenant="acme")
            producer.add(3)
            producer.add(4, tenant="acme")
            await comes_true(lambda: len(receiver.got) == 2)
        assert receiver.numbers(secret) == [2, 4]


async def test_without_a_word_of_the_program_nobody_serves_them(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command
) -> None:
    seen: list[int] = []

    @outbox.listener("other", on="*")
    async def other(event: Any) -> None:
        seen.append(event.payload["n"])

    async with receiving() as receiver:
        await command("add", "acme", receiver.url, "--on", "*")
        async with consuming(outbox):
            producer.add(1)
            await comes_true(lambda: seen == [1])
        assert receiver.got == []


async def test_addresses_inside_are_refused_unless_allowed(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command
) -> None:
    refused = await command("add", "refused", "http://127.0.0.1:1/x", "--on", "*")
    assert refused.exit_code == 2
    assert "https" in refused.output
    inside = await command("add", "acme", "https://10.0.0.1/x", "--on", "*")
    assert inside.exit_code == 2
    assert "10.0.0.1" in inside.output
    assert "there is no endpoint" in (await command("list")).output


async def test_commands_say_what_they_did(command: Command) -> None:
    url = "https://acme.example/hooks"
    missing = await command("disable", "acme")
    assert missing.exit_code == 1
    assert "no endpoint 'acme'" in missing.output
    added = await command("add", "acme", url, "--on", "order.*", "--secret-env", NAMED)
    first, from_when = added.output.splitlines()
    assert first == "endpoint acme: added, as listener webhook:acme"
    assert "once a running consumer has seen it: within about 5 s" in from_when
    again = await command("add", "acme", url, "--on", "order.*", "--secret-env", NAMED)
    assert again.exit_code == 2
    assert "already" in again.output
    listed = (await command("list")).output
    assert f"env:{NAMED}" in listed
    assert (await command("disable", "acme")).output == "endpoint acme: disabled\n"
    assert (await command("disable", "acme")).output == "endpoint acme: was already disabled\n"
    assert (await command("enable", "acme")).output == "endpoint acme: enabled\n"
    assert (await command("enable", "acme")).output == "endpoint acme: was not disabled\n"
    removed = await command("remove", "acme", "--yes")
    assert "endpoint acme: removed" in removed.output
    wrong = await command("add", "a b", url, "--on", "order.*", "--secret-env", NAMED)
    assert wrong.exit_code == 2
    key = await command("new-key")
    assert len(key.output.strip()) == 44


async def test_a_test_message_tells_what_came_back(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await command(
        "add",
        "acme",
        "https://acme.invalid/x",
        "--on",
        "*",
        "--secret-env",
        NAMED,
    )
    assert made.exit_code == 0, made.output
    unset = await command("test", "acme")
    assert unset.exit_code == 2
    assert NAMED in unset.output
    monkeypatch.setenv(NAMED, "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    failed = await command("test", "acme")
    assert failed.exit_code == 1
    assert "RelayError" in failed.output


async def test_a_change_while_it_works_loses_nothing_and_doubles_nothing(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    async_engine: AsyncEngine,
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    seen: list[int] = []

    @outbox.listener("other", on="*")
    async def other(event: Any) -> None:
        seen.append(event.payload["n"])

    async with receiving() as receiver:
        secret = await secret_of(await command("add", "acme", receiver.url, "--on", "*"))
        async with consuming(outbox) as running:
            for number in range(60):
                await anyio.to_thread.run_sync(producer.add, number)
                if number % 20 == 10:
                    await command("add", f"more{number}", receiver.url, "--on", "none.of.them")
            await comes_true(lambda: len(receiver.got) >= 60 and len(seen) >= 60)
            assert running.recorder.of(RelayAway) == []
        assert sorted(seen) == list(range(60))
        assert sorted(receiver.numbers(secret)) == list(range(60))


async def test_one_that_somebody_wrote_wrong_by_hand_is_left_out_and_the_others_are_served(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    for name, settings in (("none", "{}"), ("list", "[1]"), ("more", '{"on": ["*"], "x": 1}')):
        database.rows(
            "INSERT INTO outbox_endpoints (name, url, settings)"
            " VALUES (:name, 'https://acme.example/', CAST(:settings AS jsonb))",
            name=name,
            settings=settings,
        )
    async with receiving() as receiver:
        await command("add", "good", receiver.url, "--on", "*")
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(receiver.got) == 1)
            left_out = running.recorder.of(EndpointLeftOut)
    assert sorted(each.endpoint for each in left_out) == ["list", "more", "none"]
    assert all("add it again" in each.why for each in left_out)
    listed = await command("list")
    assert listed.exit_code == 2
    assert "can't be read" in listed.output
    assert "good" in listed.output
    for name in ("list", "more", "none"):
        assert (await command("remove", name, "--yes")).exit_code == 0
    assert "good" in (await command("list")).output


class TestDatabaseThatIsAway:
    """When a consumer begins again, because the endpoints were changed."""

    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """``"away"`` for each read that finds no database; the first one of the test does."""
        answers = ["there"]
        read = serving.Endpoints.read

        async def answer(self: serving.Endpoints) -> None:
            if (answers.pop(0) if answers else "there") == "away":
                raise ConnectionRefusedError
            await read(self)

        monkeypatch.setattr(serving, "RETRY_SECONDS", 0.01)
        monkeypatch.setattr(serving.Endpoints, "read", answer)
        return answers

    async def test_is_waited_for(
        self,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
        command: Command,
        reads: list[str],
    ) -> None:
        outbox.webhooks(allow=LOCAL, ports="any")
        async with receiving() as receiver, consuming(outbox) as running:
            reads += ["away", "away"]
            await command("add", "acme", receiver.url, "--on", "*")
            await comes_true(lambda: running.recorder.of(DatabaseBack))
            assert len(running.recorder.of(DatabaseAway)) == 2
            await comes_true(lambda: len(running.recorder.of(LeaseClaimed)) >= 1)
            producer.add(1)
            await comes_true(lambda: len(receiver.got) == 1)

    async def test_is_not_waited_for_by_one_that_is_stopped(
        self, outbox: Outbox, consuming: Consuming, command: Command, reads: list[str]
    ) -> None:
        outbox.webhooks(allow=LOCAL, ports="any")
        async with consuming(outbox) as running:
            reads += ["away"] * 1_000_000
            await command("add", "acme", "http://127.0.0.1:1/", "--on", "*")
            await comes_true(lambda: running.recorder.of(DatabaseAway))
            running.consumer.stop()
            await comes_true(running.stopped.is_set)


async def test_somebody_waits_until_an_endpoint_has_got_an_event(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    database: Database,
    async_engine: AsyncEngine,
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    chosen = ("--on", "order.*", "--tenant", "acme", "--where", '{"n": 1}')
    async with receiving() as receiver:
        await command("add", "acme", receiver.url, *chosen)
        async with consuming(outbox):
            await comes_true(lambda: database.value("SELECT count(*) FROM outbox_listeners") == 1)
            with producer.open() as session:
                wanted = session.add_event("order.placed", {"n": 1}, tenant="acme").event_id
                unwanted = [
                    session.add_event("order.placed", {"n": 2}, tenant="acme").event_id,
                    session.add_event("order.placed", {"n": 1}, tenant="other").event_id,
                    session.add_event("user.left", {"n": 1}, tenant="acme").event_id,
                ]

            status = await outbox.wait(async_engine, wanted, listener="webhook:acme")

            assert (status.state, len(receiver.got)) == ("succeeded", 1)
            for each in unwanted:
                with pytest.raises(ConfigError, match="'webhook:acme' does not get this event"):
                    await outbox.wait(async_engine, each, listener="webhook:acme")
                with producer.open() as session:
                    assert not outbox.status(session, each).listeners
            with pytest.raises(ConfigError, match="no consumer has served an endpoint"):
                await outbox.wait(async_engine, wanted, listener="webhook:acne")

        await command("disable", "acme")
        with producer.open() as session:
            later = session.add_event("order.placed", {"n": 1}, tenant="acme").event_id
        with pytest.raises(NotFinished, match="Is the endpoint enabled"):
            await outbox.wait(
                async_engine, later, listener="webhook:acme", timeout=timedelta(milliseconds=30)
            )


async def test_an_endpoint_that_is_changed_keeps_its_place_and_its_secret(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        secret = await secret_of(
            await command("add", "acme", receiver.url, "--on", "order.*", "--where", '{"n": 1}')
        )
        async with consuming(outbox):
            await comes_true(lambda: database.value("SELECT count(*) FROM outbox_listeners") == 1)
            producer.add(1, 2)
            await comes_true(lambda: receiver.numbers(secret) == [1])
        producer.add(3)  # while nobody works: it waits, and is looked at with the new filter

        changed = await command("change", "acme", "--no-where", "--timeout", "3", "--why", "wider")

        assert changed.output == (
            "endpoint acme: timeout was 15.0, is 3.0\n"
            'endpoint acme: where was {"n": 1}, is not set\n'
        )
        async with consuming(outbox):
            await comes_true(lambda: receiver.numbers(secret) == [1, 3])
            # A running consumer notices.
            again = await command("change", "acme", "--on", "user.*", "--concurrency", "4")
            assert again.output == 'endpoint acme: on was ["order.*"], is ["user.*"]\n'
            await comes_true(
                lambda: database.value("SELECT event_types FROM outbox_listeners") == ["user.*"]
            )
    record = database.rows(
        "SELECT detail FROM outbox_audit WHERE action = 'endpoint changed' ORDER BY id"
    )[0].detail
    assert record["why"] == "wider"
    assert record["changed"] == {"where": [{"n": 1}, None], "timeout": [15, 3]}
    kept = database.rows("SELECT settings FROM outbox_endpoints")[0].settings
    assert (kept["order"], kept["timeout"], kept["concurrency"]) == ("key", 3, 4)


async def test_how_often_one_that_rests_is_tried_and_what_410_means_is_said_of_each(
    command: Command, database: Database
) -> None:
    place = "https://93.184.216.34/hooks"
    await command("add", "acme", place, "--on", "*", "--probe-interval", "2.5", "--retry-410")
    await command("add", "other", place, "--on", "*")

    changed = await command("change", "other", "--probe-interval", "90", "--retry-410")
    await command("change", "acme", "--no-retry-410")

    assert changed.output == (
        "endpoint other: probe_interval was 30.0, is 90.0\n"
        "endpoint other: retry_410 was false, is true\n"
    )
    kept = {row.name: row.settings for row in database.rows("SELECT * FROM outbox_endpoints")}
    assert {name: (each["probe_interval"], each["retry_410"]) for name, each in kept.items()} == {
        "acme": (2.5, False),
        "other": (90, True),
    }


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["acme"], "name what to change"),
        (["acme", "--where", "{}", "--no-where"], "not both"),
        (["acme", "--where", '{"n": {"m": []}}', "--tenant", "a", "--no-tenant"], "not both"),
        (["acme", "--where", "[1]"], "where"),
        (["acme", "--on", "!order.*"], "would never get an event"),
        (["acne", "--on", "*"], "there is no endpoint 'acne'; did you mean 'acme'"),
        (["acme", "--order", "total"], "No such option"),
    ],
)
async def test_a_change_that_is_not_possible_changes_nothing(
    command: Command, database: Database, arguments: list[str], why: str
) -> None:
    await command("add", "acme", "https://93.184.216.34/hooks", "--on", "*")

    result = await command("change", *arguments)

    assert result.exit_code != 0
    assert why in result.output
    assert database.value("SELECT settings ->> 'on' FROM outbox_endpoints") == '["*"]'
    assert database.value("SELECT count(*) FROM outbox_audit") == 1
