"""Whoever writes rows of ``outbox_endpoints`` gets no secret out of the consumer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from sa_outbox import Outbox
from sa_outbox.consumer.services import endpoints as serving
from sa_outbox.consumer.shared import relay_backoff
from sa_outbox.database.tables import tables
from sa_outbox.errors import ConfigError
from sa_outbox.observe import DeadLettered, EndpointLeftOut
from sa_outbox.operations import sealing
from sa_outbox.operations.endpoint import Delivering, Endpoint
from sa_outbox.operations.endpoints import add_endpoint
from sa_outbox.operations.operator import Operator
from sa_outbox.webhooks import new_secret
from tests.support import comes_true
from tests.support.receiver import LOCAL, Command, Receiver, endpoints_command, receiving, secret_of

from .conftest import Consuming, Database, Producer, Running

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
SETTINGS = """'{"on": ["*"]}'"""
TOKEN = "t0ken-of-acme"


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


@pytest.fixture
def outbox(outbox: Outbox) -> Outbox:
    outbox.webhooks(allow=LOCAL, ports="any")
    return outbox


async def add_acme(command: Command, receiver: Receiver) -> str:
    """With a token; its secret."""
    added = ("add", "acme", receiver.url, "--on", "*", "--bearer-file", "-")
    return await secret_of(await command(*added, stdin=TOKEN + "\n"))


async def left_out(running: Running, name: str) -> str:
    """Why it was."""

    def why() -> list[str]:
        return [each.why for each in running.recorder.of(EndpointLeftOut) if each.endpoint == name]

    await comes_true(lambda: why() != [])
    return why()[-1]


@pytest.mark.parametrize(
    ("secrets", "bearer"),
    [
        ("""'["env:AWS_SECRET_ACCESS_KEY"]'""", "NULL"),
        ("""'[]'""", "'env:AWS_SECRET_ACCESS_KEY'"),
        ("""'["env:SA_OUTBOX_SECRET_KEY"]'""", "'env:SA_OUTBOX_SECRET_KEY'"),
        ("""'[]'""", "'env:SA_OUTBOX_WEBHOOK_ACME'"),
    ],
)
async def test_a_row_can_not_name_any_variable_of_the_consumer(
    secrets: str,
    bearer: str,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token in particular: it is sent as it is, to whatever URL the row has."""
    for each in ("AWS_SECRET_ACCESS_KEY", "SA_OUTBOX_WEBHOOK_ACME"):
        monkeypatch.setenv(each, new_secret())
    async with receiving() as evil, receiving() as good:
        await command("add", "good", good.url, "--on", "*")
        database.rows(
            "INSERT INTO outbox_endpoints (name, url, settings, secrets, bearer)"
            f" VALUES ('evil', :url, {SETTINGS}, {secrets}, {bearer})",
            url=evil.url,
        )
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(good.got) == 1)
            why = await left_out(running, "evil")

        assert evil.got == []
        assert "add it again" in why
        assert "whsec_" not in why


COPIED = (
    "INSERT INTO outbox_endpoints (name, url, settings, secrets, bearer)"
    " SELECT 'evil', :url, settings, {}, {} FROM outbox_endpoints WHERE name = 'acme'"
)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(COPIED.format("secrets", "NULL"), id="copied secret"),
        pytest.param(COPIED.format("'[]'", "bearer"), id="copied token"),
        pytest.param(COPIED.format("'[]'", "secrets ->> 0"), id="secret as a token"),
    ],
)
async def test_a_sealed_value_opens_in_no_other_row(
    attack: str,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    database: Database,
) -> None:
    async with receiving() as evil, receiving() as acme:
        secret = await add_acme(command, acme)
        database.rows(attack, url=evil.url)
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(acme.got) == 1)
            why = await left_out(running, "evil")

        assert evil.got == []
        assert "sealed for another endpoint" in why
        assert acme.numbers(secret) == [1]
        assert acme.got[0][0]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param("bearer = secrets ->> 0", id="the secret, as a token"),
        pytest.param("secrets = jsonb_build_array(bearer)", id="the token, as a secret"),
        pytest.param("secrets = jsonb_build_array(secrets -> 1)", id="the secret before it"),
        pytest.param(
            "secrets = jsonb_build_array(secrets -> 1, secrets -> 0)", id="secrets swapped"
        ),
    ],
)
async def test_a_sealed_value_opens_in_no_other_field(
    attack: str,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    database: Database,
) -> None:
    async with receiving() as acme, receiving() as good:
        await add_acme(command, acme)
        await command("rotate", "acme")
        await command("add", "good", good.url, "--on", "*")
        database.rows(f"UPDATE outbox_endpoints SET {attack} WHERE name = 'acme'")
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(good.got) == 1)
            assert "sealed for another" in await left_out(running, "acme")

        assert acme.got == []


async def test_a_row_with_another_url_rests_until_somebody_fixes_it(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    turned = "UPDATE outbox_endpoints SET url = :url, updated_at = now() WHERE name = 'acme'"
    async with receiving() as acme, receiving() as evil, receiving() as good:
        secret = await add_acme(command, acme)
        await command("add", "good", good.url, "--on", "*")
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(acme.got) == len(good.got) == 1)
            database.rows(turned, url=evil.url)
            assert "URL" in await left_out(running, "acme")
            producer.add(2)
            await comes_true(lambda: len(good.got) == 2)
            assert (len(acme.got), evil.got) == (1, [])

            moved = await command("move", "acme", evil.url)
            assert moved.exit_code == 2
            assert "put the old one back" in moved.output
            assert secret not in moved.output

            database.rows(turned, url=acme.url)
            await comes_true(lambda: len(acme.got) == 2)
            assert running.recorder.of(DeadLettered) == []
        assert acme.numbers(secret) == [1, 2]
        assert evil.got == []


async def test_a_network_that_is_allowed_permits_plain_http_to_no_other(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    async with receiving() as good:
        await command("add", "good", good.url, "--on", "*")
        refused = await command(
            "add", "outside", "http://8.8.8.8/", "--on", "*", "--allow", LOCAL[0]
        )
        assert refused.exit_code == 2
        assert "by https, not by http" in refused.output
        database.rows(
            "INSERT INTO outbox_endpoints (name, url, settings)"
            f" VALUES ('outside', 'http://8.8.8.8/', {SETTINGS})"
        )
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(good.got) == 1)
            assert "by https, not by http" in await left_out(running, "outside")


async def test_an_endpoint_is_at_no_other_port_than_those_that_are_permitted(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    async with receiving() as good, receiving() as trap:
        outbox.webhooks(allow=LOCAL, ports=[good.port])
        await command("add", "good", good.url, "--on", "*")
        refused = await command("add", "refused", "https://acme.example:6379/", "--on", "*")
        assert refused.exit_code == 2
        assert "6379" in refused.output
        database.rows(
            f"INSERT INTO outbox_endpoints (name, url, settings) VALUES ('trap', :url, {SETTINGS})",
            url=trap.url,
        )
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(good.got) == 1)
            assert "ports=" in await left_out(running, "trap")
        assert trap.got == []


async def test_a_test_message_reads_no_other_variable_either(
    command: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs where an operator works, whose environment has more in it."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", new_secret())
    async with receiving() as evil:
        database.rows(
            "INSERT INTO outbox_endpoints (name, url, settings, secrets) VALUES"
            f""" ('evil', :url, {SETTINGS}, '["env:AWS_SECRET_ACCESS_KEY"]')""",
            url=evil.url,
        )
        permitted = ("--allow", LOCAL[0], "--port", str(evil.port))
        refused = await command("test", "evil", *permitted)
        assert refused.exit_code == 2
        assert "does not allow" in " ".join(refused.output.split())
        assert evil.got == []

        wanted = await command("test", "evil", *permitted, "--read-env", "AWS_SECRET_ACCESS_KEY")
        assert wanted.output == "endpoint evil: took it\n"
        assert len(evil.got) == 1


async def test_move_takes_the_secrets_along(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    async with receiving() as before, receiving() as after:
        old = await add_acme(command, before)
        new = await secret_of(await command("rotate", "acme"))
        moved = await command("move", "acme", after.url, "--why", "they asked")
        assert moved.output == f"endpoint acme: moved to {after.url}\n"
        async with consuming(outbox):
            producer.add(1)
            await comes_true(lambda: len(after.got) == 1)
        assert after.numbers(old) == after.numbers(new) == [1]
        assert after.got[0][0]["authorization"] == f"Bearer {TOKEN}"
        assert before.got == []
    audit = database.rows("SELECT action FROM outbox_audit ORDER BY id")
    assert [each.action for each in audit][-1] == "endpoint moved"
    refused = await command("move", "refused", "http://10.0.0.1/")
    assert refused.exit_code == 2


async def test_the_sealing_key_can_be_replaced(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    command: Command,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old_key, new_key = sealing.new_key(), sealing.new_key()
    monkeypatch.setenv(sealing.VARIABLE, old_key)
    async with receiving() as acme:
        secret = await add_acme(command, acme)
        stored = "SELECT secrets ->> 0 AS secret, bearer FROM outbox_endpoints"
        (before,) = database.rows(stored)
        monkeypatch.setenv(sealing.VARIABLE, new_key)
        unknown = await command("reseal")
        assert unknown.exit_code == 1
        assert "Add that key" in unknown.output

        monkeypatch.setenv(sealing.VARIABLE, f"{new_key},{old_key}")
        done = await command("reseal")
        assert done.output == "endpoint acme: sealed with the first key\n"
        assert "nothing to do" in (await command("reseal")).output
        (after,) = database.rows(stored)
        assert before.secret != after.secret
        assert before.bearer != after.bearer

        monkeypatch.setenv(sealing.VARIABLE, new_key)
        async with consuming(outbox):
            producer.add(1)
            await comes_true(lambda: len(acme.got) == 1)
        assert acme.numbers(secret) == [1]
        assert acme.got[0][0]["authorization"] == f"Bearer {TOKEN}"


async def test_one_that_can_not_be_resealed_holds_up_no_other(
    command: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acme", "bolt", "core"):
        await command("add", name, f"https://{name}.example/", "--on", "*")
    database.rows("UPDATE outbox_endpoints SET url = 'https://evil.example/' WHERE name = 'bolt'")
    old = os.environ[sealing.VARIABLE]
    monkeypatch.setenv(sealing.VARIABLE, f"{sealing.new_key()},{old}")

    done = await command("reseal")

    assert done.exit_code == 1
    assert "acme: sealed" in done.output
    assert "core: sealed" in done.output
    assert "bolt: left as it is" in done.output


async def test_a_token_from_a_file_loses_its_line_end_and_is_sealed(
    command: Command, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\r\n")
    url = "https://acme.example/"

    added = await command("add", "acme", url, "--on", "*", "--bearer-file", str(file))
    assert added.exit_code == 0, added.output
    file.write_text("to\nken")
    refused = await command("add", "bolt", url, "--on", "*", "--bearer-file", str(file))

    assert refused.exit_code == 2
    assert "bearer token" in refused.output
    assert "ken" not in refused.output.replace("token", "")
    (row,) = database.rows("SELECT bearer FROM outbox_endpoints")
    assert sealing.reveal(row.bearer, sealing.Binding("acme", url, "bearer")) == TOKEN
    assert TOKEN not in row.bearer


@pytest.mark.parametrize(
    ("secrets", "bearer"),
    [
        (("whsec_plain",), None),
        ((), "plain"),
        ((), "plain\n"),
        ((), "env:SA_OUTBOX_WEBHOOK_ACME"),
        (("env:not a name",), None),
    ],
)
def test_what_is_not_sealed_is_not_stored(
    secrets: tuple[str, ...], bearer: str | None, engine: Engine, database: Database, outbox: Outbox
) -> None:
    endpoint = Endpoint(
        name="acme",
        url="https://acme.example/",
        delivering=Delivering(on=("*",)),
        secrets=secrets,
        bearer=bearer,
    )
    with engine.begin() as connection, pytest.raises(ConfigError) as told:
        add_endpoint(connection, tables(outbox.settings.names), endpoint, Operator(who="me"))

    assert "plain" not in str(told.value)
    assert database.rows("SELECT * FROM outbox_endpoints") == []


WRONG_SETTINGS = [
    '"probe_interval": 0',
    '"probe_interval": "x"',
    '"probe_interval": 1e300',
    '"retry_410": "yes"',
    '"where": "x"',
    '"where": []',
    '"where": {}',
    '"where": {"tags": ["a"]}',
]


async def test_rows_of_any_shape_are_left_out_and_the_others_are_served(
    outbox: Outbox, producer: Producer, consuming: Consuming, command: Command, database: Database
) -> None:
    wrong = [
        ("""'{"on": ["*"], "timeout": "x"}'""", "'[]'"),
        ("""'{"on": ["*"], "timeout": -1}'""", "'[]'"),
        ("""'{"on": ["*"], "timeout": 1e300}'""", "'[]'"),
        ("""'{"on": ["*"], "concurrency": "x"}'""", "'[]'"),
        ("""'{"on": ["*"], "order": 7}'""", "'[]'"),
        ("""'{"on": ["*"], "tenant": []}'""", "'[]'"),
        ("""'{"on": [1]}'""", "'[]'"),
        ("""'{"on": "*"}'""", "'[]'"),
        *((f"""'{{"on": ["*"], {each}}}'""", "'[]'") for each in WRONG_SETTINGS),
        ("""('{"on": ["*"], "where": {"n": 1' || repeat('0', 5000) || '}}')::jsonb""", "'[]'"),
        (
            """('{"on": ["*"], "where": {"n": ' || repeat('[', 3000) || repeat(']', 3000) || '}}')
            ::jsonb""",
            "'[]'",
        ),
        (SETTINGS, "'[5]'"),
        (SETTINGS, "'{}'"),
        (SETTINGS, "'7'"),
        (SETTINGS, """'["a", "b", "c"]'"""),
        (SETTINGS, """'["sealed:1:::"]'"""),
        (SETTINGS, """'["env:"]'"""),
    ]
    for number, (settings, secrets) in enumerate(wrong):
        database.rows(
            "INSERT INTO outbox_endpoints (name, url, settings, secrets)"
            f" VALUES ('wrong{number}', 'https://acme.example/', {settings}, {secrets})"
        )
    async with receiving() as good:
        await command("add", "good", good.url, "--on", "*")
        async with consuming(outbox) as running:
            producer.add(1)
            await comes_true(lambda: len(good.got) == 1)
            found = running.recorder.of(EndpointLeftOut)
    assert len({each.endpoint for each in found}) == len(wrong)
