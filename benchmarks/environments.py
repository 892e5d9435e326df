"""The peers of ``bench_peers``, each installed in its newest version into an environment of its
own, in the platform's cache folder: never in this tree, and never in our own environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
NODE = "node@22"
"""From npm: graphile-worker needs a newer one than many systems have."""


class NotInstalled(Exception):
    """A peer could not be installed; the others take part without it."""


def cache_folder() -> Path:
    if given := os.environ.get("SA_OUTBOX_BENCH_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sa_outbox-benchmarks"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sa_outbox-benchmarks"


@dataclass(frozen=True)
class Peer:
    title: str
    program: str
    """In ``benchmarks/peers``."""
    requires: tuple[str, ...] = ()
    """What pip installs, or npm for a program in JavaScript; nothing: our own environment."""
    most: int = 1_000_000
    """No more events in a drain: a slow one would take minutes, and its rate is no other."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return cache_folder() / self.program.partition(".")[0]

    @property
    def is_javascript(self) -> bool:
        return self.program.endswith(".js")

    def install(self) -> str:
        """Install it, or bring it up to date; return its version."""
        if not self.requires:
            return "this tree"
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            return self._install_from_npm() if self.is_javascript else self._install_from_pypi()
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotInstalled(_reason(error)) from error

    def _install_from_pypi(self) -> str:
        python = self.folder / "bin" / "python"
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(self.folder)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "install", "--upgrade", *self.requires])
        name = self.requires[0].partition("[")[0]
        ask = f"from importlib.metadata import version; print(version({name!r}))"
        return _run([str(python), "-c", ask]).strip()

    def _install_from_npm(self) -> str:
        latest = [name if "@" in name else f"{name}@latest" for name in self.requires]
        (self.folder / "package.json").write_text('{"private": true}')
        _run(["npm", "install", "--silent", "--no-package-lock", *latest], self.folder)
        package = self.folder / "node_modules" / self.requires[0] / "package.json"
        # Node looks for modules beside the program, not in the folder it is started from.
        (self.folder / self.program).write_text((PEERS / self.program).read_text())
        return str(json.loads(package.read_text())["version"])

    def command(self, *arguments: str) -> list[str]:
        if self.is_javascript:
            node = self.folder / "node_modules" / "node" / "bin" / "node"
            return [str(node), str(self.folder / self.program), *arguments]
        python = self.folder / "bin" / "python" if self.requires else Path(sys.executable)
        return [str(python), str(PEERS / self.program), *arguments]


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", "") or str(error)
    return str(said).strip().splitlines()[-1] if said else type(error).__name__


def ours(order: str) -> Peer:
    return Peer(
        f'sa_outbox, order="{order}"', "sa_outbox_peer.py", environment={"BENCH_ORDER": order}
    )


ALL = {
    "cursor": Peer("asyncpg cursor by hand, orjson", "cursor_peer.py"),
    "key": ours("key"),
    "total": ours("total"),
    "none": ours("none"),
    "eventsourcing": Peer("eventsourcing", "eventsourcing_peer.py", ("eventsourcing[postgres]",)),
    "graphile": Peer("graphile-worker", "graphile_peer.js", ("graphile-worker", "pg", NODE)),
    "pgmq": Peer("pgmq, SQL only", "pgmq_peer.py", ("pgmq[async]", "asyncpg", "uvloop")),
    "pgqueuer": Peer("pgqueuer", "pgqueuer_peer.py", ("pgqueuer[asyncpg]", "uvloop")),
    "procrastinate": Peer(
        "procrastinate",
        "procrastinate_peer.py",
        ("procrastinate", "psycopg[binary,pool]"),
        most=2_000,
    ),
}
