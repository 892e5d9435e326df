"""Both type checkers agree with every line of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
CHECKED = sorted(each for each in FOLDER.glob("*.py") if not each.name.startswith("test_"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["mypy", "--strict", "--cache-dir", "{cache}"], id="mypy"),
        pytest.param(["pyright", "--pythonpath", sys.executable], id="pyright"),
    ],
)
def test_the_checker_agrees(command: list[str], tmp_path: Path) -> None:
    options = [each.format(cache=tmp_path) for each in command]

    done = subprocess.run(
        [sys.executable, "-m", *options, *map(str, CHECKED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_checker_would_notice_an_error_that_vanished(checker: str, tmp_path: Path) -> None:
    """The proof that the ignores of this folder are themselves checked."""
    lines = (FOLDER / "sessions.py").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if "# type: ignore" in line)
    lines[first] = '    session.add_event("x")  # type: ignore[call-overload]'
    # In the folder's own configuration, and not in the folder: others may check it meanwhile.
    copy = tmp_path / "sessions.py"
    copy.write_text("\n".join(lines) + "\n")
    options = {
        "mypy": ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "c")],
        "pyright": ["--pythonpath", sys.executable],
    }

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
