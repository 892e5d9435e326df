"""Rules and triggers on the log that swallow events: an INSERT succeeds and writes fewer rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text

SWALLOWING = {
    "a rule": ["CREATE RULE forget AS ON INSERT TO outbox DO INSTEAD NOTHING"],
    "a trigger": [
        (
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN IF NEW.event_type = 'keep' THEN RETURN NEW; END IF; RETURN NULL; END$$"
        ),
        "CREATE TRIGGER swallow BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION swallow()",
    ],
}
"""The trigger keeps events of the type ``keep``."""
_GONE = (
    "DROP RULE IF EXISTS forget ON outbox",
    "DROP TRIGGER IF EXISTS swallow ON outbox",
    "DROP FUNCTION IF EXISTS swallow",
)


@contextmanager
def swallowed_by(what: str, engine: Engine) -> Iterator[None]:
    _run(engine, *SWALLOWING[what])
    try:
        yield
    finally:
        _run(engine, *_GONE)


def _run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for each in statements:
            connection.execute(text(each))
