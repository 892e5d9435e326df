"""The commands for operators, as somebody types them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL, Engine, text

import sa_outbox
from sa_outbox.cli import main
from sa_outbox.operations.audit import ACTIONS
from tests.support.commands import commands_of
from tests.support.dashboard import ODD_ERRORS

ESCAPE = "\x1b[31m"
MISWORDED = re.compile(
    r"\b([A-Za-z]{2,}) \1\b"
    r"|(?<![\w,.])1 (?:\w+ )?(?:deliveries|endpoints|events|keys|letters|listeners|records|rows)\b"
)
"""A word that is doubled, or one of something in the plural."""


@pytest.fixture
def run(engine: Engine, migrated_url: URL, monkeypatch: pytest.MonkeyPatch) -> Any:
    """On a database with two listeners, ten events and three dead letters."""
    with engine.begin() as connection:
        for statement in (
            (
                "INSERT INTO outbox (event_id, event_type, key, tenant, payload)"
                " SELECT gen_random_uuid(), 'order.placed', 'k' || n % 2, 'acme',"
                " jsonb_build_object('n', n, 'card', '4111') FROM generate_series(1, 10) AS n"
            ),
            (
                "INSERT INTO outbox_listeners (name, last_processed_id) VALUES"
                " ('mail', 10), ('strict', 4)"
            ),
            "UPDATE outbox_listeners SET retry_count = 2, retry_position = 5 WHERE name = 'strict'",
            (
                "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, key,"
                " tenant, payload, event_created_at, reason, attempts, errors)"
                " SELECT 'mail', id, event_id, event_type, key, tenant, payload, created_at,"
                " 'attempts', 3, jsonb_build_array(jsonb_build_object('attempt', 1, 'code', 'boom',"
                " 'message', '\x1b[31mno'))"
                " FROM outbox WHERE id < 4"
            ),
        ):
            connection.execute(text(statement))
    url = migrated_url.set(drivername="postgresql")
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", url.render_as_string(hide_password=False))
    monkeypatch.setenv("SA_OUTBOX_OPERATOR", "ann")

    def invoke(*words: str, answer: str | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(main, list(words), input=answer)
        assert result.exit_code == code, result.output
        assert ESCAPE not in result.output
        assert MISWORDED.findall(result.output) == []
        return result

    return invoke


def value(engine: Engine, statement: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(text(statement)).scalar_one()


def test_status_is_a_table_or_json_and_a_check_for_scripts(run: Any) -> None:
    shown = run("status").stdout
    assert "mail      caught up    0" in shown
    assert "strict    retry 2      6" in shown

    found = json.loads(run("status", "--json").stdout)
    mail, strict = found["listeners"]
    assert (mail["name"], mail["dead_letters"], mail["lag_events"]) == ("mail", 3, 0)
    assert strict["cursors"][0]["retry_position"] == 5
    assert found["dead_letters"] == 3

    wrong = run("status", "--check", "--max-lag", "0", code=1).stderr
    assert "3 open dead letters" in wrong
    assert "strict is" in wrong
    run("status", "--check", "--max-lag", "3600", "--max-dead", "3")
    assert "mail" in run("top").stdout  # without a terminal, once
    assert "strict       0       4" in run("listeners", "list").stdout


def test_events_are_listed_without_and_shown_with_their_payload(run: Any) -> None:
    listed = run("events", "list", "--key", "k1", "--limit", "2")
    assert "4111" not in listed.stdout
    assert "--before 7" in listed.stderr
    shown = run("events", "show", "2", "--mask", "card").stdout
    assert '"n": 2' in shown
    assert "4111" not in shown
    assert "mail      dead" in shown
    assert json.loads(run("events", "show", "2", "--json").stdout)["dead_letters"] == [2]
    run("events", "show", "99", code=1)
    run("events", "show", "x", code=2)
    assert len(json.loads(run("events", "list", "--since", "1h", "--json").stdout)["events"]) == 10


def test_an_event_that_succeeded_is_not_shown_with_no_attempt_and_says_when(
    run: Any, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox_results"
                " (event_id, listener, result_ref, recorded_at, expires_at)"
                " SELECT event_id, 'mail', 'x/5.csv', '2026-01-02 03:04:05Z', 'infinity'"
                " FROM outbox WHERE id = 5"
            )
        )
    line = next(
        each for each in run("events", "show", "5").stdout.splitlines() if each.startswith("mail")
    )
    assert line.split() == ["mail", "succeeded", "-", "2026-01-02", "03:04:05Z", "-", "x/5.csv"]


def test_dead_letters_are_listed_shown_and_counted(run: Any) -> None:
    listed = run("dead-letters", "list", "--listener", "mail", "--limit", "2")
    assert "4111" not in listed.stdout
    assert "\\x1b[31mno" in listed.stdout
    assert "--before 2" in listed.stderr
    assert run("dead-letters", "list", "--count").stdout == "3\n"
    assert len(json.loads(run("dead-letters", "list", "--json").stdout)["letters"]) == 3
    assert "4111" in run("dead-letters", "show", "1").stdout
    assert "4111" not in run("dead-letters", "show", "1", "--mask", "card", "--json").stdout
    assert "there is no dead letter 99" in run("dead-letters", "show", "99", code=1).stderr


def test_many_are_replayed_after_a_look_and_a_yes(run: Any, engine: Engine) -> None:
    count = "SELECT count(*) FROM outbox_deliveries"
    replay = ("dead-letters", "replay", "--listener", "mail", "--key", "k1")
    assert run(*replay, "--dry-run").stdout == "2 dead letters would be replayed\n"
    asked = run(*replay, answer="n\n", code=1)
    assert "as role" in asked.stderr
    assert value(engine, count) == 0
    run(*replay, answer="y\n")
    assert value(engine, count) == 2
    run("dead-letters", "replay", code=2)
    run("dead-letters", "replay", "1", "--all", code=2)
    wrong = run("dead-letters", "replay", "2", "99", "--yes", code=1)
    assert wrong.stderr == "Error: there is no dead letter 99; nothing was replayed\n"
    run("dead-letters", "replay", "1", code=1)  # it was
    assert "1 dead letter replayed" in run("dead-letters", "replay", "2").stdout
    assert run("dead-letters", "replay", "--all", "--yes").stdout == (
        "0 dead letters replayed: no open one matches\n"
    )


def test_they_are_discarded_and_edited_with_who_and_why(run: Any, engine: Engine) -> None:
    run("dead-letters", "edit", "1", "--payload", "{", code=1)
    run("dead-letters", "edit", "1", "--payload", '"\\u0000"', code=1)
    run("dead-letters", "edit", "1", "--payload", '{"n": 7}', "--replay")
    run("dead-letters", "edit", "1", "--payload", "1", code=1)
    run("dead-letters", "edit", "2", "--headers", '{"a": "b"}')
    run("dead-letters", "discard", "--all", "--fixed", "--why", "by hand", "--yes")

    audited = "SELECT string_agg(action || ' ' || actor_id, ', ' ORDER BY id) FROM outbox_audit"
    assert value(engine, audited) == ("edited ann, replayed ann, edited ann, fixed ann, fixed ann")
    assert value(engine, "SELECT payload FROM outbox_dead_letters WHERE id = 1") == {"n": 7}


@pytest.fixture
def careful_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A program whose outbox refuses events."""
    (tmp_path / "careful_app.py").write_text(
        """
from sa_outbox import Contract, Event, Outbox

def check(event: Event) -> None:
    if event.payload.get("n") == 13 and event.key == "k1" and event.tenant == "acme":
        raise ValueError("unlucky")

outbox = Outbox(check_event=check, contract=Contract(required=("tenant", "request_id")))
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "careful_app:outbox"
    sys.modules.pop("careful_app", None)


def test_an_edit_is_refused_by_what_the_program_refuses(
    run: Any, engine: Engine, careful_app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = ("dead-letters", "edit", "1", "--app", careful_app)

    refused = run(*edit, "--payload", '{"n": 13}', code=1).stderr
    assert "check_event refused the edit: ValueError: unlucky" in refused
    # It was stored without a request_id, so the payload may change, and one may be added.
    assert "--app" not in run(*edit, "--payload", '{"n": 14}').stderr
    run(*edit, "--headers", '{"request_id": "r1"}')
    # Then it stays.
    gone = run(*edit, "--headers", '{"note": "x"}', code=1).stderr
    assert "this outbox's contract requires request_id" in gone

    monkeypatch.setenv("SA_OUTBOX_APP", careful_app)
    run("dead-letters", "edit", "1", "--payload", '{"n": 13}', code=1)
    monkeypatch.delenv("SA_OUTBOX_APP")
    done = run("dead-letters", "edit", "1", "--payload", '{"n": 13}')
    assert done.stderr == "no check_event or contract was applied: --app names your outbox\n"
    assert value(engine, "SELECT edits FROM outbox_dead_letters WHERE id = 1") == 3


@pytest.mark.parametrize("stored", ['{"a": 1e5000}', "[1]"])
def test_headers_that_nobody_can_read_are_repaired_with_the_rules_of_the_program(
    run: Any, engine: Engine, careful_app: str, stored: str
) -> None:
    with engine.begin() as connection:
        unreadable = "UPDATE outbox_dead_letters SET headers = CAST(:stored AS jsonb) WHERE id = 1"
        connection.execute(text(unreadable), {"stored": stored})
    edit = ("dead-letters", "edit", "1", "--app", careful_app)

    kept = run(*edit, "--payload", '{"n": 14}', code=1).stderr
    assert "the stored headers can't be read" in kept
    assert "sa-outbox dead-letters edit 1 --headers" in kept
    refused = run(*edit, "--payload", '{"n": 13}', "--headers", "{}", code=1).stderr
    assert "unlucky" in refused
    run(*edit, "--headers", '{"a": "b"}')

    assert value(engine, "SELECT headers FROM outbox_dead_letters WHERE id = 1") == {"a": "b"}


def test_an_editor_may_change_the_payload(
    run: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.edit", lambda shown, extension: shown.replace("4111", "4242"))
    run("dead-letters", "edit", "3")
    card = "SELECT payload ->> 'card' FROM outbox_dead_letters WHERE id = 3"
    assert value(engine, card) == "4242"
    monkeypatch.setattr("click.edit", lambda shown, extension: None)
    assert "nothing was changed" in run("dead-letters", "edit", "3", code=1).stderr


def test_a_listener_is_moved_after_its_name_was_typed(run: Any, engine: Engine) -> None:
    position = "SELECT last_processed_id FROM outbox_listeners WHERE name = 'mail'"
    rewind = ("listeners", "rewind", "mail", "--to-id", "4")
    run(*rewind, answer="mial\n", code=1)
    run("listeners", "rewind", "mail", code=2)
    run("listeners", "rewind", "nobody", "--to-beginning", "--yes", code=1)
    assert value(engine, position) == 10
    assert "cursor 10 -> 3" in run(*rewind, answer="mail\n").stdout
    assert "cursor 3 -> 10" in run("listeners", "skip", "mail", "--to-now", "--yes").stdout
    assert "cursor 10 -> 0" in run("listeners", "rewind", "mail", "--to-time", "1h", "--yes").stdout
    assert "event 5 is skipped" in run("listeners", "skip", "strict", "--stuck", "--yes").stdout
    assert "paused" in run("listeners", "pause", "mail").stdout
    assert "resumed" in run("listeners", "resume", "mail").stdout
    assert "retired" in run("listeners", "retire", "mail", answer="mail\n").stdout
    assert value(engine, "SELECT count(*) FROM outbox_audit WHERE actor_id = 'ann'") == 7
    header, *lines = run("audit", "--listener", "mail").stdout.splitlines()
    actor = header.index("ACTOR")
    assert [line[actor:].split("  ")[0] for line in lines] == ["ann"] * 6


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).stdout
    assert "_SA_OUTBOX_COMPLETE" in script


def test_a_listener_or_type_that_nobody_knows_is_an_error_that_names_what_there_is(
    run: Any,
) -> None:
    for words in (("replay", "--yes"), ("discard", "--yes"), ("replay", "--dry-run"), ("list",)):
        wrong = run("dead-letters", *words, "--listener", "mial", code=1)
        assert "no listener 'mial'; did you mean 'mail'?" in wrong.stderr
        wrong = run("dead-letters", *words, "--type", "order.place", code=1)
        assert "did you mean 'order.placed'?" in wrong.stderr
    assert "there are: mail, strict" in run("listeners", "pause", "xyz", code=1).stderr
    assert "'mail'?" in run("queues", "list", "mial", code=1).stderr
    assert "'mail'?" in run("repartition", "mial", "2", code=2).stderr
    assert "'order.placed'?" in run("events", "list", "--type", "order.place").stderr
    assert "none is known" in run("endpoints", "disable", "ship", code=1).stderr
    # Known, but there is nothing to do.
    assert run("dead-letters", "list", "--listener", "strict").stdout == "no dead letter\n"
    assert run("dead-letters", "list", "--type", "other.*").stdout == "no dead letter\n"


TYPOS = {"--listener": ("mial", "'mail'"), "--type": ("order.place", "'order.placed'")}
"""For each option that chooses by a name: a wrong one, and the near one."""
CHOOSING = [
    (words, option)
    for words, command in commands_of(main)
    for option in TYPOS
    if any(option in each.opts for each in command.params)
]
NEEDED: dict[tuple[str, ...], list[str]] = {
    ("deliveries", "retry"): ["--all"],
    ("dead-letters", "replay"): ["--yes"],
    ("dead-letters", "discard"): ["--yes"],
}
"""What such a command needs besides, to do something."""


@pytest.mark.parametrize(
    ("words", "option"),
    CHOOSING,
    ids=lambda each: "-".join(each) if isinstance(each, tuple) else each,
)
def test_a_listener_or_type_with_a_typo_does_not_look_like_nothing_to_do(
    words: tuple[str, ...], option: str, run: Any
) -> None:
    typo, near = TYPOS[option]
    # A type may be older than the events among which the near one is looked for, or yet to come.
    may_be_right = option == "--type" and words[0] in {"events", "deliveries"}

    wrong = run(*words, *NEEDED.get(words, ()), option, typo, code=0 if may_be_right else 1)

    assert f"did you mean {near}?" in wrong.stderr


def test_some_commands_choose_by_listener_or_type() -> None:
    assert len(CHOOSING) > 10


@pytest.mark.parametrize("action", ["retry", "cancel"])
def test_a_delivery_of_a_listener_that_nobody_knows_is_no_delivery_that_is_done(
    action: str, run: Any
) -> None:
    more = ["--yes"] if action == "cancel" else []

    wrong = run("deliveries", action, "1:strict", "1:mial", *more, code=1)

    assert "no listener 'mial'; did you mean 'mail'?" in wrong.stderr
    assert wrong.stdout == ""


def test_a_type_without_deliveries_is_no_error_although_another_is_near(run: Any) -> None:
    listed = run("deliveries", "list", "--type", "order.refunded", "--json")
    retried = run("deliveries", "retry", "--all", "--type", "order.refunded")

    assert json.loads(listed.stdout) == {"deliveries": [], "next_after": None}
    assert retried.stdout == "no delivery waits for a retry\n"
    hint = "no recent event has such a type; did you mean 'order.placed'?\n"
    assert (listed.stderr, retried.stderr) == (hint, hint)


def test_deliveries_that_were_not_examined_are_still_offered_beside_the_near_type(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("dead-letters", "replay", "--all", "--yes")
    monkeypatch.setattr("sa_outbox.operations.deliveries.MAX_EXAMINED", 2)

    found = run("deliveries", "list", "--type", "order.refunded")

    assert found.stdout == "no delivery\n"
    assert "did you mean 'order.placed'?" in found.stderr
    assert "there may be more: --after 2:mail" in found.stderr


@pytest.mark.parametrize("output", [[], ["--json"]], ids=["table", "json"])
def test_an_action_that_does_not_exist_is_answered_with_the_near_one(
    output: list[str], run: Any
) -> None:
    wrong = run("audit", "--action", "pausd", *output, code=2)

    assert "the audit has no action 'pausd'; did you mean 'paused'?" in wrong.stderr
    assert wrong.stdout == ""


def test_no_action_that_an_outbox_writes_is_refused_for_having_no_record(
    run: Any, engine: Engine
) -> None:
    recorded = {"retried", "started"}  # near to 'retired' and 'discarded'
    with engine.begin() as connection:
        for each in recorded:
            connection.execute(text(f"INSERT INTO outbox_audit (action) VALUES ('{each}')"))

    others = {*ACTIONS} - recorded

    assert {run("audit", "--action", each).output for each in others} == {"no record\n"}


def test_an_action_that_somebody_recorded_by_hand_is_known(run: Any, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO outbox_audit (action) VALUES ('posed')"))

    assert "posed" in run("audit", "--action", "posed").stdout
    assert run("audit", "--action", "posed", "--listener", "mail").stdout == "no record\n"


def test_an_unknown_listener_is_an_error_for_programs_too(run: Any) -> None:
    wrong = run("audit", "--listener", "mial", "--json", code=1)

    assert "no listener 'mial'; did you mean 'mail'?" in wrong.stderr
    assert wrong.stdout == ""


def test_records_that_were_not_examined_are_still_offered(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        run("listeners", "pause", "mail")
        run("listeners", "resume", "mail")
    monkeypatch.setattr("sa_outbox.operations.audit.MAX_EXAMINED", 2)

    assert "--before 3" in run("audit", "--action", "retired").stderr
    assert "--before 3" in run("audit", "--listener", "mial", code=1).stderr
    continued = run("audit", "--listener", "mial", "--before", "3")  # it may have been retired
    assert continued.stdout == "no record\n"
    assert "--before 1" in continued.stderr


def test_every_action_that_is_written_is_among_the_known_ones() -> None:
    written = re.compile(
        r"""\(action,[^)]*\)\s+(?:SELECT|VALUES \()\s*'([a-z ]+)'"""  # SQL, with its columns
        r"""|SELECT '([a-z ]+)', (?:o\.)?event_id"""
        r"""|_audited\(tables, "'([a-z ]+)'\""""
        r"""|\baction="([a-z ]+)\""""
        r"""|"action": "([a-z ]+)\""""
    )
    rooms = ("sql", "client", "consumer", "operations")
    package = Path(sa_outbox.__file__).parent
    sources = [path.read_text() for room in rooms for path in (package / room).rglob("*.py")]

    found = {next(filter(None, each)) for source in sources for each in written.findall(source)}

    # The others are written by functions that take an ``Action``: mypy compares those.
    assert {"enqueued", "started", "erased", "retried now", "replayed", "edited", "adopted",
            "cancelled", "cancel requested", "cron run now"} <= found  # fmt: skip
    assert found <= {*ACTIONS}


def test_an_event_s_way_is_known_from_what_consumers_registered(run: Any, engine: Engine) -> None:
    assert "strict    unknown" in run("events", "show", "2").stdout  # no consumer has run
    with engine.begin() as connection:
        for name, types in (("mail", "{order.*}"), ("strict", "{invoice.*}")):
            connection.execute(
                text("UPDATE outbox_listeners SET event_types = :types WHERE name = :name"),
                {"types": types.strip("{}").split(","), "name": name},
            )

    shown = run("events", "show", "7").stdout
    assert "mail      succeeded" in shown
    assert "strict" not in shown  # it wants other types


def test_the_program_may_be_named_in_the_environment(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SA_OUTBOX_APP", "no_such_module:outbox")
    assert "no_such_module" in run("events", "show", "7", code=2).stderr
    assert "no_such_module" in run("dashboard", code=2).stderr
    assert "no_such_module" in run("repartition", "mail", "2", code=2).stderr
    assert "no_such_module" in run("doctor", code=2).stderr


def test_who_holds_a_claim_and_for_how_long_is_in_the_tables(run: Any, engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in (
            (
                "UPDATE outbox_listeners SET locked_by = 'host-a:11:aa',"
                " lease_expires_at = clock_timestamp() + interval '90s' WHERE name = 'strict'"
            ),
            (
                "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by,"
                " lease_expires_at) VALUES"
                " ('mail', 10, '[[3, 4], [7, 7]]', 'host-b:22:bb',"
                " clock_timestamp() + interval '90s'),"
                " ('mail', 10, '[[8, 8]]', 'host-c:33:cc', clock_timestamp() - interval '1s')"
            ),
        ):
            connection.execute(text(statement))

    status = run("status").stdout
    for shown in (status, run("listeners", "list").stdout):
        (mail,) = [line for line in shown.splitlines() if line.startswith("mail")]
        (strict,) = [line for line in shown.splitlines() if line.startswith("strict")]
        assert "host-b:22  1m 2" in mail
        assert "host-c" not in mail  # its lease is over
        assert "host-a:11  1m 2" in strict
    first, second = json.loads(run("queues", "list", "--json").stdout)
    assert (first["queue"], first["first_id"], first["events"]) == ("mail", 3, 3)
    assert (first["owner"], second["owner"], second["lease_seconds"]) == (
        "host-b:22:bb",
        None,
        None,
    )
    assert "host-b:22  1m 2" in run("queues", "list", "mail").stdout


@pytest.mark.parametrize("columns", [None, "60"])
def test_a_table_is_whole_in_a_pipe_whatever_the_environment_says(
    columns: str | None, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)  # as readline does, for the children of a program
        monkeypatch.setenv("LINES", "24")

    assert "…" not in run("dead-letters", "list").stdout


@pytest.mark.usefixtures("run")
def test_a_table_is_no_wider_than_its_terminal(migrated_url: URL) -> None:
    terminal, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: each for name, each in os.environ.items() if name != "COLUMNS"}
    url = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)

    subprocess.run(
        [sys.executable, "-m", "sa_outbox", "dead-letters", "list"],
        env=environment | {"SA_OUTBOX_DATABASE_URL": url, "NO_COLOR": "1"},
        stdout=slave,
        check=True,
        timeout=60,
    )
    os.close(slave)
    pieces = []
    with suppress(OSError):  # which says that there is no more
        while piece := os.read(terminal, 10_000):
            pieces.append(piece)
    os.close(terminal)
    written = b"".join(pieces).decode()

    assert "…" in written
    assert max(map(len, written.splitlines())) <= 80


TRACEBACK = [
    {
        "type": "OSError",
        "frames": [{"file": "shop/mail.py", "line": 7, "function": "send\x1b[31m"}],
    },
    {"type": "KeyError", "relation": "cause", "frames": [], "omitted": 3, "omitted_after": 0},
]


def test_the_traceback_of_each_attempt_is_shown_once_for_those_that_share_it(
    run: Any, engine: Engine
) -> None:
    stored = [{"attempt": n, "traceback": TRACEBACK} for n in (1, 2)]
    stored.append({"attempt": 3, "traceback": TRACEBACK[:1]})
    write_errors(engine, stored)

    shown = run("dead-letters", "show", "1").stdout

    assert (
        "\ntraceback of attempts 1, 2:\n  (3 frames are left out here)\nKeyError (the cause)"
        in shown
    )
    assert (
        'traceback of attempt 3:\n  File "shop/mail.py", line 7, in send\\x1b[31m\nOSError' in shown
    )
    found = json.loads(run("dead-letters", "show", "1", "--json").stdout)
    assert [each["traceback"] for each in found["errors"]] == [TRACEBACK, TRACEBACK, TRACEBACK[:1]]


def write_errors(engine: Engine, stored: Any) -> None:
    with engine.begin() as connection:
        update = "UPDATE outbox_dead_letters SET errors = CAST(:stored AS jsonb)"
        text_ = stored if isinstance(stored, str) else json.dumps(stored)
        connection.execute(text(update), {"stored": text_})


@pytest.mark.parametrize("stored", ODD_ERRORS.values(), ids=ODD_ERRORS)
def test_errors_that_somebody_else_wrote_stop_no_command(
    run: Any, engine: Engine, stored: str
) -> None:
    write_errors(engine, stored)
    event_id = value(engine, "SELECT event_id FROM outbox_dead_letters WHERE id = 3")
    with engine.begin() as connection:  # what an erasure looks for in the errors
        connection.execute(text("UPDATE outbox_listeners SET last_error = 'x'"))

    run("dead-letters", "list")
    run("dead-letters", "show", "1")
    json.loads(run("dead-letters", "show", "1", "--json").stdout)
    run("events", "show", "2")
    run("dead-letters", "replay", "1", "--yes")
    run("dead-letters", "discard", "2", "--yes", "--why", "x")
    run("events", "erase", str(event_id), "--yes")


def test_dead_letters_are_grouped_and_chosen_by_the_fingerprint_of_their_error(
    run: Any, engine: Engine
) -> None:
    with engine.begin() as connection:
        for statement in (
            "UPDATE outbox_dead_letters SET error_fingerprint = 'abc' WHERE id < 3",
            "UPDATE outbox_dead_letters SET listener = 'strict' WHERE id = 2",
        ):
            connection.execute(text(statement))

    groups = json.loads(run("dead-letters", "list", "--group-by", "error", "--json").stdout)[
        "groups"
    ]
    first, second = groups
    assert (first["error_fingerprint"], first["count"], first["sample"]) == ("abc", 2, 2)
    assert first["listeners"] == ["mail", "strict"]
    assert first["first_at"] <= first["last_at"]
    assert (second["error_fingerprint"], second["count"]) == (None, 1)
    shown = run("dead-letters", "list", "--group-by", "error", "--listener", "mail").stdout
    assert "FINGERPRINT" in shown
    assert "strict" not in shown
    assert run("dead-letters", "list", "--count", "--fingerprint", "abc").stdout == "2\n"
    assert "fingerprint    abc" in run("dead-letters", "show", "1").stdout
    run("dead-letters", "replay", "--fingerprint", "abc", "--listener", "mail", "--yes")
    run("dead-letters", "discard", "--fingerprint", "abc", "--yes", "--why", "x")
    states = "SELECT array_agg(resolution ORDER BY id) FROM outbox_dead_letters"
    assert value(engine, states) == ["replayed", "discarded", None]
