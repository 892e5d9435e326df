"""Write a revision into a user's own Alembic history that updates our tables.

Their history keeps its single head, and ``alembic upgrade``, ``downgrade`` and ``--sql`` work as
for any other revision. Touches files only, never a database.
"""

from __future__ import annotations

import ast
import warnings
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError, rev_id

from sa_outbox.errors import ConfigError
from sa_outbox.migrations import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sa_outbox.settings import Names


@dataclass(frozen=True)
class Written:
    """What was written: the step from version *since* to *to*; no path if nothing was needed."""

    since: int
    to: int
    path: Path | None


def write_revision(
    config_file: Path, names: Names, *, message: str | None = None, version_path: str | None = None
) -> Written:
    """Add a revision on top of the single head, from the history's last version to the latest."""
    if not config_file.is_file():
        raise ConfigError(f"there is no {config_file}: pass --config, or run `alembic init` first")
    # Quiet: the caller reports what was written. Alembic warns of a broken link before failing on
    # it.
    config = Config(str(config_file), cmd_opts=Namespace(quiet=True))
    with warnings.catch_warnings(record=True, action="always") as warned:
        try:
            directory = ScriptDirectory.from_config(config)
            heads = directory.get_heads()
            since = max(_versions(directory, names), default=0)
        except (CommandError, KeyError, SyntaxError) as error:
            reason = warned[-1].message if warned else error
            raise ConfigError(
                f"alembic can't read the history of {config_file}: {reason}"
            ) from error
    if len(heads) > 1:
        raise ConfigError(
            f"this history has {len(heads)} heads ({', '.join(sorted(heads))}): a revision needs "
            'exactly one. Join them first: alembic merge heads -m "merge"'
        )
    if since >= LATEST:
        return Written(since, since, None)
    path = _write(directory, names, since, message, version_path)
    return Written(since, LATEST, path)


def call(function: str, names: Names, *, since: int, to: int) -> str:
    """The line of the revision that does the work."""
    arguments = ["op", f"since={since}", f"to={to}"]
    if names.schema is not None:
        arguments.append(f'schema="{names.schema}"')
    if names.prefix != "outbox":
        arguments.append(f'prefix="{names.prefix}"')
    return f"migrations.{function}({', '.join(arguments)})"


def _write(
    directory: ScriptDirectory,
    names: Names,
    since: int,
    message: str | None,
    version_path: str | None,
) -> Path:
    upgrade = call("upgrade", names, since=since, to=LATEST)
    try:
        script = directory.generate_revision(
            rev_id(),
            message or ("create outbox" if since == 0 else f"outbox version {LATEST}"),
            version_path=version_path,
            imports="from sa_outbox import migrations",
            upgrades=upgrade,
            downgrades=call("downgrade", names, since=LATEST, to=since),
        )
    except CommandError as error:
        raise ConfigError(f"alembic can't write the revision: {error}") from error
    if script is None:
        raise ConfigError("alembic did not find the revision it has just written")
    path = Path(script.path)
    if upgrade not in path.read_text() or "import migrations" not in path.read_text():
        # A multi-database template, or a custom one, without the slots Alembic usually fills.
        path.unlink()
        raise ConfigError(
            "script.py.mako does not insert ${imports}, ${upgrades} and ${downgrades}: make a "
            "revision with `alembic revision` and call in it, after `from sa_outbox import "
            f"migrations`: {upgrade}"
        )
    return path


def _versions(directory: ScriptDirectory, names: Names) -> Iterator[int]:
    """The versions that this history's revisions bring these tables to."""
    for script in directory.walk_revisions():
        for node in ast.walk(ast.parse(Path(script.path).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                said = {each.arg: each.value for each in node.keywords}
                to = said.get("to")
                if (
                    node.func.attr == "upgrade"
                    and "since" in said
                    and isinstance(to, ast.Constant)
                    and isinstance(to.value, int)
                    and _says(said.get("schema"), names.schema, None)
                    and _says(said.get("prefix"), names.prefix, "outbox")
                ):
                    yield to.value


def _says(node: ast.expr | None, value: str | None, default: str | None) -> bool:
    """Whether an argument has this value, as far as can be seen without running the revision."""
    if node is None:
        return value == default
    return not isinstance(node, ast.Constant) or node.value == value
