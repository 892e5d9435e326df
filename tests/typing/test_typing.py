"""Both type checkers agree with every line of this folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


@pytest.fixture
def options(tmp_path: Path) -> dict[str, list[str]]:
    """Of each checker. mypy gets a copy of what it knows since `make lint`, if that was run: it
    checks what has changed since, and nobody else writes there."""
    known, cache = ROOT / ".mypy_cache", tmp_path / "cache"
    with suppress(OSError):  # of shutil too: none is there, or somebody else's mypy is at work
        shutil.copytree(known, cache)
    configured = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    return {"mypy": configured, "pyright": ["--pythonpath", sys.executable]}


def test_both_checkers_of_make_lint_read_this_folder() -> None:
    """So they agree with every line of it: `make check` and `make test` begin with `make lint`."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert "tests" in tools["mypy"]["files"]
    assert "tests/typing" in tools["pyright"]["include"]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_checker_would_notice_an_error_that_vanished(
    checker: str, options: dict[str, list[str]], tmp_path: Path
) -> None:
    """The proof that the ignores of this folder are themselves checked."""
    lines = (FOLDER / "sessions.py").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if "# type: ignore" in line)
    lines[first] = '    session.add_event("x")  # type: ignore[call-overload]'
    # In the folder's own configuration, and not in the folder: others may check it meanwhile.
    copy = tmp_path / "sessions.py"
    copy.write_text("\n".join(lines) + "\n")

    done = subprocess.run(
        [sys.executable, "-m", checker, *options[checker], str(copy)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"sessions.py:{first + 1}" in done.stdout
    assert "nnecessary" in done.stdout or "nused" in done.stdout
