"""Both sides on this machine, until Ctrl-C: two databases, sender, consumer, receiver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from honcho.manager import Manager

from sa_outbox.embedded import EmbeddedPostgres

PYTHON = f"exec {sys.executable} -m"
CONSUME = "sa_outbox.consume --log-format console"
OUTBOX = [sys.executable, "-m", "sa_outbox"]
RECEIVER = "http://127.0.0.1:8100/hooks/shop"
SECRETS = Path("secrets.txt")


def main() -> int:
    with EmbeddedPostgres() as server:
        sender, receiver = server.create_database("sender"), server.create_database("receiver")
        key = subprocess.check_output([*OUTBOX, "endpoints", "new-key"], text=True).strip()
        environment = {
            **os.environ,
            "DATABASE_URL": sender,  # what sa-outbox works on
            "SENDER_DATABASE_URL": sender,
            "SENDER_ALLOW": "127.0.0.0/8",
            "SENDER_PORTS": "8100",
            "SA_OUTBOX_SECRET_KEY": key,
            "RECEIVER_DATABASE_URL": receiver,
            "RECEIVER_SECRETS_FILE": str(SECRETS),
            "PYTHONUNBUFFERED": "1",
        }
        for database in (sender, receiver):
            there = {**environment, "DATABASE_URL": database}
            subprocess.run([*OUTBOX, "migrate"], env=there, check=True)
        SECRETS.write_text(add_endpoint(environment) + "\n")
        SECRETS.chmod(0o600)
        processes = Manager()
        for name, command in (
            ("sender", "uvicorn sender.app:app --port 8000"),
            ("consumer", f"{CONSUME} sender.app:outbox --monitor-port 9100"),
            ("receiver", "uvicorn receiver.app:app --port 8100"),
        ):
            processes.add_process(name, f"{PYTHON} {command}", env=environment)
        print(f"for the commands of sa-outbox:\nexport DATABASE_URL={sender}")
        print(f"export SA_OUTBOX_SECRET_KEY={key}", flush=True)
        processes.loop()
    return int(processes.returncode or 0)


def add_endpoint(environment: dict[str, str]) -> str:
    """Its secret, which is shown this once."""
    permitted = ["--allow", "127.0.0.0/8", "--port", "8100"]
    command = [*OUTBOX, "endpoints", "add", "acme", RECEIVER, "--on", "order.*", *permitted]
    return subprocess.check_output(command, env=environment, text=True).splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
