"""Everything on this machine, until Ctrl-C: a PostgreSQL, some work, and two processes."""

from __future__ import annotations

import os
import subprocess
import sys

from honcho.manager import Manager

from sa_outbox.embedded import EmbeddedPostgres

CONSUMER = "-m sa_outbox.consume app:outbox --log-format console --monitor-port"


def main() -> int:
    with EmbeddedPostgres() as server:
        environment = {**os.environ, "DATABASE_URL": server.url(), "PYTHONUNBUFFERED": "1"}
        for words in (["-m", "sa_outbox", "migrate"], ["app.py"]):
            subprocess.run([sys.executable, *words], env=environment, check=True)
        processes = Manager()
        for name, port in (("first", "9100"), ("second", "9200")):
            command = f"exec {sys.executable} {CONSUMER} {port}"
            processes.add_process(name, command, env=environment)
        print(f"for the commands of sa-outbox:\nexport DATABASE_URL={server.url()}", flush=True)
        processes.loop()
    return int(processes.returncode or 0)


if __name__ == "__main__":
    sys.exit(main())
