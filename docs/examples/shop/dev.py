"""Everything on this machine, until Ctrl-C: PostgreSQL, migrations, web server, consumer.

To try the shop without Docker. What runs elsewhere is in compose.yaml.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from honcho.manager import Manager

from sa_outbox.embedded import EmbeddedPostgres

PYTHON = f"{sys.executable} -m"


def main() -> int:
    with EmbeddedPostgres(data=Path("pgdata")) as server:
        environment = {
            **os.environ,
            "DATABASE_URL": server.url(),
            "SHOP_LOG_FORMAT": "console",
            "PYTHONUNBUFFERED": "1",
        }
        subprocess.run(
            [sys.executable, "-m", "alembic", "upgrade", "head"], env=environment, check=True
        )
        processes = Manager()
        for name, command in (
            ("web", "uvicorn shop.app:app --port 8000"),
            ("consumer", "sa_outbox.consume shop.consumer:outbox --monitor-port 9100"),
        ):
            processes.add_process(name, f"exec {PYTHON} {command}", env=environment)
        print("the shop: http://127.0.0.1:8000/docs", flush=True)
        processes.loop()
    return int(processes.returncode or 0)


if __name__ == "__main__":
    sys.exit(main())
