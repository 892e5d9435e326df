"""``python -m sa_outbox.consume``."""

from .command import command

if __name__ == "__main__":
    command()
