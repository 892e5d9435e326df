"""``sa-outbox catalog``: the file, the check, and what they answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sa_outbox.cli import main

PROGRAM = """
from dataclasses import dataclass
from sa_outbox import Event, Outbox, event_type

@event_type("catalog.ordered")
@dataclass
class Ordered:
    order_id: int
    colour: str

outbox = Outbox()

@outbox.listener("billing", on="catalog.*")
async def bill(event: Event[Ordered]) -> None: ...
"""
APP = ("--app", "catalogued:outbox")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "catalogued.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("SA_OUTBOX_APP", raising=False)
    yield tmp_path
    sys.modules.pop("catalogued", None)


def run(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, ["catalog", *words], input=given)


def committed(place: Path) -> Any:
    assert run(*APP).exit_code == 0
    return json.loads((place / "asyncapi.json").read_text())


def schema_in(document: Any) -> Any:
    return document["components"]["schemas"]["catalog.ordered"]


def test_it_writes_a_file_and_says_whether_that_changed(place: Path) -> None:
    first, second = run(*APP), run(*APP)

    assert (first.exit_code, first.stderr) == (0, "asyncapi.json: written\n")
    assert (second.exit_code, second.stderr) == (0, "asyncapi.json: unchanged\n")
    assert first.stdout == ""


def test_it_prints_the_document_for_a_pipe(place: Path) -> None:
    result = run(*APP, "-o", "-", "--title", "Shop", "--api-version", "2.1.0")

    assert json.loads(result.stdout)["info"] == {"title": "Shop", "version": "2.1.0"}
    assert result.stderr == ""
    assert list(place.glob("*.json")) == []


def test_it_writes_a_json_schema(place: Path) -> None:
    assert run(*APP, "--format", "json-schema").stderr == "events.schema.json: written\n"
    found = json.loads((place / "events.schema.json").read_text())
    assert found["definitions"]["catalog.ordered"]["required"] == ["colour", "order_id"]


def test_two_processes_write_the_same_bytes(place: Path) -> None:
    """Sets have another order in each."""
    words = [sys.executable, "-m", "sa_outbox", "catalog", *APP, "-o", "-"]
    texts = {
        subprocess.run(
            words,
            cwd=place,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(texts) == 1


def test_without_a_program_it_says_how_to_name_one(place: Path) -> None:
    (place / "asyncapi.json").write_text("{}")
    for result in (run(), run("check", "asyncapi.json")):
        assert result.exit_code == 2
        assert "--app, as in shop.app:outbox, or set SA_OUTBOX_APP" in result.stderr


def test_the_program_may_be_named_before_the_check_or_in_the_environment(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(place)

    assert run(*APP, "check", "asyncapi.json").exit_code == 0
    monkeypatch.setenv("SA_OUTBOX_APP", APP[1])
    assert run("check", "asyncapi.json").exit_code == 0


def test_a_check_without_changes_passes(place: Path) -> None:
    committed(place)
    result = run("check", "asyncapi.json", *APP)

    assert result.exit_code == 0
    assert result.stdout == "asyncapi.json: nothing breaks, 0 other changes\n"


def test_a_check_of_what_breaks_fails_and_says_whom_and_what_to_do(place: Path) -> None:
    document = committed(place)
    schema_in(document)["required"] = ["order_id"]
    schema_in(document)["properties"] = {"order_id": {"type": "integer"}}

    result = run("check", "-", *APP, given=json.dumps(document))

    assert result.exit_code == 1
    assert result.stdout == (
        "breaking: catalog.ordered\n"
        "    stored events, read by billing (as Ordered)\n"
        "        $.colour: required, and stored events may lack it\n"
        "            or give it a default\n"
        '    fix: version=2 and @upcaster("catalog.ordered", since=1), and consumers are deployed '
        "before producers\n"
        "\n"
        "<stdin>: 1 breaking change, 0 other changes\n"
    )


def test_what_is_wanted_can_be_allowed_by_name(place: Path) -> None:
    document = committed(place)
    schema_in(document)["properties"]["colour"] = {"type": "integer"}
    given = json.dumps(document)

    assert run("check", "-", *APP, given=given).exit_code == 1
    result = run("check", "-", *APP, "--allow", "catalog.ordered", given=given)

    assert result.exit_code == 0
    assert "(breaking, and allowed)" in result.stdout


def test_an_allowance_for_nothing_is_mentioned(place: Path) -> None:
    committed(place)
    result = run("check", "asyncapi.json", *APP, "--allow", "catalog.orderd")

    assert result.exit_code == 0
    assert result.stderr == "--allow catalog.orderd: nothing of that name has changed\n"


def test_old_consumers_do_not_count_where_none_runs_beside_the_new_release(place: Path) -> None:
    document = committed(place)
    schema_in(document)["properties"]["gone"] = {"type": "integer"}
    schema_in(document)["required"] = ["colour", "gone", "order_id"]
    given = json.dumps(document)

    assert run("check", "-", *APP, given=given).exit_code == 1
    assert run("check", "-", *APP, "--stored-only", given=given).exit_code == 0


def test_programs_read_the_changes_as_json(place: Path) -> None:
    document = committed(place)
    schema_in(document)["properties"]["colour"] = {"type": "integer"}

    result = run("check", "-", *APP, "--json", given=json.dumps(document))

    assert result.exit_code == 1
    found = json.loads(result.stdout)["changes"]
    assert {each["protects"] for each in found} == {"stored", "deploy"}
    assert {each["fails"] for each in found} == {True}
    assert found[0]["breaks"] == ["billing (as Ordered)"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "<stdin> is not JSON"),
        ("[]", "<stdin> is not a catalogue"),
        ("{}", "not a catalogue that sa-outbox catalog has written"),
    ],
)
def test_what_is_no_catalogue_is_wrong_usage(place: Path, text: str, said: str) -> None:
    result = run("check", "-", *APP, given=text)

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_that_is_not_there_is_wrong_usage(place: Path) -> None:
    assert run("check", "nowhere.json", *APP).exit_code == 2
