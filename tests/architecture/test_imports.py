"""The import contracts of pyproject.toml hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_import_contracts_are_kept() -> None:
    # The program and not its API: that one leaves the package's modules analysed by a stale cache.
    program = (
        "import sys; from importlinter.cli import lint_imports_command as run; sys.exit(run())"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--config", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
