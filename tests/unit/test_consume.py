"""The command of a consumer process, as far as it needs no database and no process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from sa_outbox import observe
from sa_outbox.cli import main
from sa_outbox.consume import process as consume
from sa_outbox.consume.command import command
from sa_outbox.consume.exit_codes import Exit
from sa_outbox.consume.logs import make_log
from sa_outbox.consume.process import Process
from sa_outbox.consume.stop import Ending
from sa_outbox.monitoring import Health, Metrics, Monitor
from sa_outbox.settings import CHOICES, RETENTIONS, ConsumerSettings

APP = """
from sa_outbox import Outbox

outbox = Outbox()
empty = Outbox()

@outbox.listener("billing", on="*")
async def bill(event) -> None: ...
"""
FIELDS = dataclasses.fields(ConsumerSettings)
URL = "postgresql://shop:hidden@db/shop"


class Fake:
    """Instead of a process: keeps what it would be run with."""

    made: list[Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Fake.made = [*arguments, options]

    def run(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def _app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SA_OUTBOX_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    (tmp_path / "app_of_consume.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(consume, "Process", Fake)
    monkeypatch.setattr(consume, "take_standard_logging", lambda *_: None)


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(command, ["app_of_consume:outbox", *words], env=environment)


def settings(*words: str, **environment: str) -> ConsumerSettings:
    result = run(*words, SA_OUTBOX_DATABASE_URL=URL, **environment)
    assert result.exit_code == 0, result.output
    found: ConsumerSettings = Fake.made[0].settings
    return found


def options() -> dict[str, click.Option]:
    return {each.name or "": each for each in command.params if isinstance(each, click.Option)}


class TestSettings:
    @pytest.mark.parametrize("field", FIELDS, ids=lambda each: each.name)
    def test_every_setting_is_an_option_with_a_variable_and_help(
        self, field: dataclasses.Field[Any]
    ) -> None:
        option = options()[field.name]

        assert option.opts == ["--" + field.name.replace("_", "-")]
        assert option.envvar == f"SA_OUTBOX_{field.name.upper()}"
        assert option.show_envvar
        assert option.help
        assert option.help.endswith(".")

    def test_without_options_they_are_the_defaults(self) -> None:
        assert settings() == ConsumerSettings()

    @pytest.mark.parametrize("field", FIELDS, ids=lambda each: each.name)
    def test_each_can_be_set_by_its_option_or_its_variable(
        self, field: dataclasses.Field[Any]
    ) -> None:
        text: str = "0.75"
        value: Any = timedelta(seconds=0.75)
        if isinstance(field.default, int):
            text, value = "7", 7
        elif field.name in RETENTIONS:
            value = timedelta(days=0.75)
        elif field.name in CHOICES:
            text = value = next(each for each in CHOICES[field.name] if each != field.default)
        given: dict[str, Any] = {field.name: value}
        expected = ConsumerSettings(**given)

        assert settings("--" + field.name.replace("_", "-"), text) == expected
        assert settings(**{f"SA_OUTBOX_{field.name.upper()}": text}) == expected

    @pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "86401", "soon", ""])
    def test_what_is_no_span_of_time_is_refused(self, text: str) -> None:
        result = run("--lease-duration", text, SA_OUTBOX_DATABASE_URL=URL)

        assert result.exit_code == 2
        assert "above 0 and up to 86400" in result.stderr

    @pytest.mark.parametrize("text", ["0", "-1", "nan", "3654", "never", ""])
    def test_what_is_no_number_of_days_is_refused(self, text: str) -> None:
        result = run("--retention", text, SA_OUTBOX_DATABASE_URL=URL)

        assert result.exit_code == 2
        assert "above 0 and up to 3653, or 'forever'" in result.stderr

    def test_for_ever_is_none(self) -> None:
        assert settings("--retention", "forever").retention is None

    def test_never_is_none(self) -> None:
        assert settings("--idle-after", "60").idle_after == timedelta(seconds=60)
        assert settings("--idle-after", "never").idle_after is None

    @pytest.mark.parametrize("text", ["0", "1.5", "x"])
    def test_what_is_no_count_is_refused(self, text: str) -> None:
        assert run("--threads", text, SA_OUTBOX_DATABASE_URL=URL).exit_code == 2

    @pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("2.5", 2.5)])
    def test_one_may_choose_not_to_wait_for_the_database(self, text: str, seconds: float) -> None:
        settings("--wait-for-database", text)

        assert Fake.made[3] == seconds


class TestAddresses:
    def test_without_one_it_says_how_to_give_it(self) -> None:
        result = run()

        assert result.exit_code == 2
        assert "Set DATABASE_URL" in result.stderr

    def test_a_program_may_set_the_variable_when_it_is_imported(self, tmp_path: Path) -> None:
        source = f"import os\nos.environ['DATABASE_URL'] = {URL!r}\n{APP}"
        (tmp_path / "app_with_env_file.py").write_text(source)
        try:
            result = CliRunner().invoke(command, ["app_with_env_file:outbox"])
        finally:
            os.environ.pop("DATABASE_URL", None)

        assert result.exit_code == 0, result.output
        assert Fake.made[1].host == "db"

    def test_a_password_on_the_command_line_is_warned_of(self) -> None:
        result = run("--database-url", URL, "--listen-url", URL)

        assert result.exit_code == 0
        assert "SA_OUTBOX_DATABASE_URL or PGPASSWORD instead" in result.stderr
        assert "SA_OUTBOX_LISTEN_URL or PGPASSWORD instead" in result.stderr
        assert "hidden" not in result.output

    def test_one_in_the_environment_is_not(self) -> None:
        result = run(SA_OUTBOX_DATABASE_URL=URL, SA_OUTBOX_LISTEN_URL=URL)

        assert result.exit_code == 0
        assert result.stderr == ""

    @pytest.mark.parametrize("url", ["mysql://shop:hidden@db/shop", "hidden", "//:hidden"])
    def test_what_is_no_address_is_refused_without_being_shown(self, url: str) -> None:
        for words in (["--database-url", url], ["--database-url", URL, "--listen-url", url]):
            result = run(*words)
            assert result.exit_code == 2
            assert "hidden" not in result.output


class TestMonitor:
    def monitor(self, *words: str, **environment: str) -> Any:
        result = run(*words, SA_OUTBOX_DATABASE_URL=URL, **environment)
        assert result.exit_code == 0, result.output
        return Fake.made[4]

    def test_there_is_none_unless_a_port_is_given(self) -> None:
        assert not isinstance(self.monitor(), Monitor)

    def test_it_is_the_machine_s_own_and_without_metrics(self) -> None:
        made = self.monitor("--monitor-port", "9100")

        assert (made.host, made.port) == ("127.0.0.1", 9100)
        assert made.respond(b"GET /metrics HTTP/1.1\r\n")[0] == 404

    def test_metrics_and_the_address_can_be_asked_for_in_the_environment(self) -> None:
        made = self.monitor(
            SA_OUTBOX_MONITOR_PORT="0", SA_OUTBOX_MONITOR_HOST="0.0.0.0", SA_OUTBOX_METRICS="1"
        )

        assert (made.host, made.port) == ("0.0.0.0", 0)
        assert made.respond(b"GET /metrics HTTP/1.1\r\n")[0] == 200

    def test_metrics_count_what_handlers_add_too(self) -> None:
        made = self.monitor("--monitor-port", "0", "--metrics")
        consumer = Fake.made[0]
        consumer.outbox.observers.emit(observe.EventsAdded({"order.placed": 2}))

        _, _, body = made.respond(b"GET /metrics HTTP/1.1\r\n")
        line = 'sa_outbox_events_added_total{event_type="order.placed",queue="default"} 2.0'
        assert line in body.decode()

    def test_nobody_in_the_process_wants_each_delivery_unless_the_log_shows_them(self) -> None:
        """An observation for each event is dear: all of them count batches."""
        observers = [Metrics, Health, Ending.observe, Process._count]
        assert [each for each in observers if not getattr(each, "wants_batches", False)] == []
        assert not make_log("json", "info", None).wants_settled
        assert make_log("json", "debug", None).wants_settled

    def test_metrics_without_a_port_are_wrong_usage(self) -> None:
        result = run("--metrics", SA_OUTBOX_DATABASE_URL=URL)

        assert result.exit_code == 2
        assert "--metrics needs --monitor-port" in result.output

    def test_metrics_without_their_library_name_the_extra(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)

        result = run("--metrics", "--monitor-port", "0", SA_OUTBOX_DATABASE_URL=URL)

        assert result.exit_code == 2
        assert "sa_outbox[prometheus]" in result.output


class TestListeners:
    def test_they_can_be_chosen_by_option_or_variable(self) -> None:
        assert run("--listener", "billing", "--database-url", "postgresql://db").exit_code == 0
        assert run(SA_OUTBOX_LISTENERS="billing", SA_OUTBOX_DATABASE_URL=URL).exit_code == 0

    def test_an_unknown_one_is_answered_with_the_near_one(self) -> None:
        result = run("--listener", "biling", SA_OUTBOX_DATABASE_URL=URL)

        assert result.exit_code == 2
        assert "there is no listener 'biling'; did you mean 'billing'?" in result.stderr

    def test_or_with_those_there_are(self) -> None:
        result = run("--listener", "xyz", SA_OUTBOX_DATABASE_URL=URL)

        assert "there is no listener 'xyz'; there are: billing" in result.stderr

    def test_an_outbox_without_any_is_refused(self) -> None:
        words = ["app_of_consume:empty"]
        result = CliRunner().invoke(command, words, env={"SA_OUTBOX_DATABASE_URL": URL})

        assert result.exit_code == 2
        assert "this outbox has no listener" in result.stderr


class TestHelp:
    def test_every_exit_code_is_documented(self) -> None:
        text = CliRunner().invoke(command, ["--help"]).stdout

        told = text[text.index("Exit codes:") :]
        for code in Exit:
            assert f"\n      {code:<4}" in told or f"\n    {code:<4}" in told

    def test_every_option_has_a_variable_beside_it(self) -> None:
        for name, option in options().items():
            if name not in {"help", "version"}:
                assert option.envvar, name
                assert option.help, name

    def test_the_target_can_be_given_by_variable(self) -> None:
        environment = {"SA_OUTBOX_APP": "app_of_consume:outbox", "SA_OUTBOX_DATABASE_URL": URL}

        assert CliRunner().invoke(command, [], env=environment).exit_code == 0

    def test_the_general_command_has_it_too(self) -> None:
        for words in (["consume", "--help"], ["consume", "-h"]):
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0
            assert "Usage: sa-outbox consume [OPTIONS] MODULE:ATTRIBUTE" in result.stdout
        environment = {"SA_OUTBOX_DATABASE_URL": URL}
        words = ["consume", "app_of_consume:outbox", "--threads", "7"]
        assert CliRunner().invoke(main, words, env=environment).exit_code == 0
        assert Fake.made[0].settings.threads == 7

    def test_other_commands_do_not_load_what_only_a_consumer_needs(self) -> None:
        program = (
            "import sys\nimport sa_outbox.cli\nprint(*({'anyio', 'structlog'} & {*sys.modules}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )

        assert done.stdout.split() == []


class TestFirstLine:
    def test_it_says_that_it_starts_before_it_loads_the_program(self, tmp_path: Path) -> None:
        (tmp_path / "broken_app.py").write_text("raise ValueError('not yet')")

        result = CliRunner().invoke(command, ["broken_app:outbox", "--log-format", "json"])

        assert result.exit_code == 2
        (line,) = result.stdout.splitlines()
        assert (json.loads(line)["event"], json.loads(line)["app"]) == (
            "starting",
            "broken_app:outbox",
        )

    def test_it_says_so_before_it_loads_what_a_consumer_needs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "sa_outbox.consume.process", None)

        result = CliRunner().invoke(command, ["app_of_consume:outbox", "--log-format", "json"])

        assert isinstance(result.exception, ImportError)
        assert json.loads(result.stdout)["event"] == "starting"

    def test_until_then_nothing_is_loaded_that_takes_its_time(self) -> None:
        slow = {"anyio", "asyncpg", "psycopg", "sqlalchemy"}
        program = (
            f"import sys\nimport sa_outbox.consume.command\nprint(*({slow} & {{*sys.modules}}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )

        assert done.stdout.split() == []
