"""What a consumer's process does to the garbage collector, in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from sa_outbox.consume.garbage import YOUNG

PROGRAM = """
import gc, json
from sa_outbox.consume.garbage import spare_what_is_loaded
usual = gc.get_threshold()
{own}
before = gc.get_threshold()
spare_what_is_loaded()
print(json.dumps([gc.get_freeze_count() > 0, gc.isenabled(), gc.get_threshold(), before, usual]))
"""


def result_of(own: str) -> list[object]:
    program = PROGRAM.format(own=own)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    made: list[object] = json.loads(found.stdout)
    return made


def test_what_is_loaded_is_spared_and_new_objects_are_looked_at_less_often() -> None:
    frozen, enabled, now, _, usual = result_of("")

    assert (frozen, enabled) == (True, True)
    assert isinstance(usual, list)
    assert now == [YOUNG, *usual[1:]]


def test_a_program_with_thresholds_of_its_own_keeps_them() -> None:
    frozen, enabled, now, before, _ = result_of("gc.set_threshold(50, 5, 5)")

    assert (frozen, enabled) == (False, True)
    assert now == before == [50, 5, 5]


def test_a_program_that_has_switched_it_off_keeps_it_off() -> None:
    frozen, enabled, *_ = result_of("gc.disable()")

    assert (frozen, enabled) == (False, False)
