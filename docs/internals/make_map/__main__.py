"""``python -m docs.internals.make_map``: writes the pages. With ``--walk`` it prints one."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path

import anyio

from sa_outbox.embedded import EmbeddedPostgres

from . import rooms
from .imports import RoomCycle
from .pages import page_of
from .scenes import SCENES
from .tracer import Tracer
from .walks import walk

FOLDER = Path(__file__).parents[1]


def main() -> None:
    parser = ArgumentParser(prog="make map", description=__doc__)
    parser.add_argument(
        "--walk", choices=sorted(SCENES), help="trace only this, and print its page"
    )
    parser.add_argument("--database", help="an empty database, for asyncpg; else an embedded one")
    given = parser.parse_args()
    tracer = Tracer()
    tracer.start()
    with ExitStack() as servers:
        url = given.database or servers.enter_context(EmbeddedPostgres()).url("asyncpg")
        if given.walk:
            sys.stdout.write(page_of(anyio.run(walk, SCENES[given.walk], url, tracer)))
            return
        _write_rooms()
        for name, scene in SCENES.items():
            _write(f"walk-{name}.md", page_of(anyio.run(walk, scene, url, tracer)))


def _write_rooms() -> None:
    try:
        texts = {**rooms.pictures(), "rooms.md": rooms.page()}
    except RoomCycle as cycle:
        sys.exit(f"rooms import each other: {cycle}")
    for name, text in texts.items():
        _write(name, text)


def _write(name: str, text: str) -> None:
    path = FOLDER / name
    path.write_text(text)
    sys.stdout.write(f"{path.relative_to(Path.cwd())}\n")


if __name__ == "__main__":
    main()
