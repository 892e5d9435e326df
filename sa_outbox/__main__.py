"""``python -m sa_outbox``: the same as the command ``sa-outbox``."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="python -m sa_outbox")
