"""``python -m sa_outbox`` runs the ``sa-outbox`` command."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="python -m sa_outbox")
