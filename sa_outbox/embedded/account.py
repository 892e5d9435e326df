"""Which account runs postgres, and what it can reach.

postgres refuses to run as root. A program that is root starts it as another account, which may be
unable to reach what root can: a virtual environment in a closed home directory. This is tested by
trying, as that account; a calculation from file modes would miss mounts and access lists.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sa_outbox.errors import EmbeddedError

# The path of a unix socket is limited to 103 bytes on macOS, 107 on Linux. This is followed by
# "/sa_outbox-12345678/.s.PGSQL.65535" and a reserve.
_LONGEST_BASE = 64


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user of this machine that is not root."""

    name: str
    uid: int
    gid: int


def choose_account(data: Path | None) -> Account | None:
    """The account that runs postgres; None: the one that runs this program.

    For root it is the owner of an existing data folder, otherwise an account that owns nothing.
    """
    if os.geteuid() != 0:
        return None
    if data is not None and data.exists() and data.stat().st_uid != 0:
        return _account(data.stat().st_uid, why=f"the owner of {data}")
    for name in ("nobody", "daemon", "postgres"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise EmbeddedError("PostgreSQL can't run as root, and there is no account nobody to run it")


def _account(uid: int, *, why: str) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"{why} has the number {uid} and no name on this machine; initdb needs a name"
        ) from None
    return Account(name=entry.pw_name, uid=uid, gid=entry.pw_gid)


def can_run(program: Path, account: Account | None) -> bool:
    """Whether *account* can start *program*; tries it with --version."""
    return _succeeds([str(program), "--version"], account)


def can_write(folder: Path, account: Account | None) -> bool:
    """Whether *account* can reach *folder* and create files in it."""
    return _succeeds(["/bin/sh", "-c", '[ -w "$1" ] && [ -x "$1" ]', "sh", str(folder)], account)


def _succeeds(command: list[str], account: Account | None) -> bool:
    try:
        answer = subprocess.run(  # noqa: S603 - our own arguments, no shell between
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            check=False,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except PermissionError:
        return False
    except (OSError, ValueError) as error:
        raise EmbeddedError(
            f"can't start a process as {account and account.name}: {error}"
        ) from error
    return answer.returncode == 0


def temporary_base(account: Account | None) -> Path:
    """A folder for temporary folders: short enough for a socket's path, accessible to *account*."""
    for base in (Path(tempfile.gettempdir()).absolute(), Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - mkdtemp makes a private folder in it
        if len(os.fsencode(base)) <= _LONGEST_BASE and can_write(base, account):
            return base
    raise EmbeddedError(
        "no folder for temporary files is short enough for a socket's path and open to "
        f"{account.name if account else 'this user'}; set TMPDIR"
    )
