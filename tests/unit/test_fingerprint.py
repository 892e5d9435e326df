"""The fingerprint of an error: the same each time that one thing fails, and another for another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sa_outbox.policy.error.frames import Frame, innermost_own
from sa_outbox.policy.error.tracebacks import LENGTH, fingerprint, fingerprint_of

PROGRAM = """
import json

def pay(text):
    card = text
    {more}
    return json.loads(text)

def refund(text):
    raise OSError(text)
"""
ASK = """
import shop
from sa_outbox.policy.error.tracebacks import fingerprint_of
for call, text in ((shop.pay, "no"), (shop.pay, "neither"), (shop.refund, "x")):
    try:
        call(text)
    except Exception as error:
        print(fingerprint_of(error))
"""


def test_it_survives_another_process_a_deploy_elsewhere_and_a_line_that_moved(
    tmp_path: Path,
) -> None:
    found = []
    for release, more in (("one", "pass"), ("two", "pass\n    pass\n    pass")):
        place = tmp_path / release / "src"
        place.mkdir(parents=True)
        (place / "shop.py").write_text(PROGRAM.format(more=more))
        code = f"import sys; sys.path.insert(0, {str(place)!r})\n{ASK}"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(done.stdout.split())

    assert found[0] == found[1]
    same, again, other = found[0]
    assert same == again != other
    assert len(same) == LENGTH


def frame(path: str, module: str, name: str) -> Frame:
    return Frame(path, module, 1, name, {})


HANDLER = frame("/srv/app/shop/mail.py", "shop.mail", "send")
STANDARD = frame(str(Path(subprocess.__file__)), "subprocess", "run")
LIBRARY = frame("/x/lib/python3/site-packages/client/http.py", "client.http", "get")
INSTALLED = frame("/x/lib/python3/site-packages/shop/mail.py", "shop.mail", "send")
RELAY = frame(
    str(Path(sys.modules["sa_outbox"].__file__ or "").parent / "relay/x.py"),
    "sa_outbox.relay.x",
    "f",
)


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([HANDLER, LIBRARY, STANDARD], ("shop/mail.py", "send")),
        ([LIBRARY, HANDLER, LIBRARY], ("shop/mail.py", "send")),
        ([STANDARD, INSTALLED, LIBRARY], ("shop/mail.py", "send")),
        ([RELAY, LIBRARY, STANDARD], ("sa_outbox/relay/x.py", "f")),
        ([STANDARD], ("subprocess.py", "run")),
        ([], None),
        (
            [HANDLER._replace(name="send.<locals>.<listcomp>"), LIBRARY],
            ("shop/mail.py", "send"),
        ),
    ],
)
def test_it_is_where_the_programs_own_code_was(frames: list[Frame], place: Any) -> None:
    assert innermost_own(frames) == place


def failing() -> NoReturn:
    raise KeyError


def caught() -> KeyError:
    try:
        failing()
    except KeyError as error:
        return error


def test_a_group_has_that_of_its_first_member() -> None:
    alone = fingerprint_of(caught())
    deep = ExceptionGroup("x", [ExceptionGroup("y", [caught(), ValueError()])])

    assert fingerprint_of(deep) == alone
    assert fingerprint_of(ValueError("not raised")) == fingerprint("ValueError")
