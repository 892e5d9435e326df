"""The machine, the versions and the day: what a figure is worth without them is nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("sa_outbox", "SQLAlchemy", "asyncpg", "psycopg", "orjson", "uvloop")


def describe() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes(pid: int | str = "self") -> int:
    """What a process has in memory now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
