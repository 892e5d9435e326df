"""``python -m sa_outbox.embedded``: a PostgreSQL until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sa_outbox.errors import EmbeddedError

from .server import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sa_outbox.embedded",
        description="Run a PostgreSQL until Ctrl-C or SIGTERM and print its address.",
    )
    parser.add_argument("--data", type=Path, help="folder to keep; default: a temporary one")
    parser.add_argument("--port", type=int, help="default: a free one")
    parser.add_argument(
        "--url-file", type=Path, help="write the address there too, and remove it at the end"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with (
            EmbeddedPostgres(data=options.data, port=options.port) as server,
            _noted(server.url(), options.url_file),
        ):
            sys.stdout.write(server.url() + "\n")
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:
        return 0
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write("the server ended by itself\n")
    return 1


@contextmanager
def _noted(url: str, file: Path | None) -> Iterator[None]:
    """The address in *file* while the server runs: whole or not at all, for its owner only."""
    if file is None:
        yield
        return
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.touch(0o600)
    partial.write_text(url + "\n")
    partial.replace(file)
    try:
        yield
    finally:
        if file.read_text() == url + "\n":  # not that of a server that was started later
            file.unlink()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
