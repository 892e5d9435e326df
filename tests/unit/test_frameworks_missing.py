"""A framework that is not installed: the error says how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["{framework}"] = None
from sa_outbox.errors import ConfigError
try:
    import sa_outbox.contrib.{framework}
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("framework", ["dishka", "fastapi", "flask", "litestar"])
def test_the_error_says_how_to_install_it(framework: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(framework=framework)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert f'pip install "{framework}>=' in done.stdout, done.stderr
