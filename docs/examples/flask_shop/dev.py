"""Everything on this machine, until Ctrl-C: PostgreSQL, tables, web server, consumer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from honcho.manager import Manager

from sa_outbox.embedded import EmbeddedPostgres

FLASK = [sys.executable, "-m", "flask", "--app", "flask_shop.app"]
CONSUMER = [sys.executable, "-m", "sa_outbox.consume", "flask_shop.listeners:outbox"]


def main() -> int:
    with EmbeddedPostgres(data=Path("pgdata")) as server:
        environment = {**os.environ, "DATABASE_URL": server.url(), "PYTHONUNBUFFERED": "1"}
        subprocess.run([*FLASK, "prepare"], env=environment, check=True)
        processes = Manager()
        for name, words in (
            ("web", [*FLASK, "run", "--port", "8000"]),
            ("consumer", [*CONSUMER, "--monitor-port", "9100", "--log-format", "console"]),
        ):
            processes.add_process(name, f"exec {' '.join(words)}", env=environment)
        print("the shop: http://127.0.0.1:8000/orders/1", flush=True)
        processes.loop()
    return int(processes.returncode or 0)


if __name__ == "__main__":
    sys.exit(main())
