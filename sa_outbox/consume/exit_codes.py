"""The exit codes of a consumer process."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of ``python -m sa_outbox.consume``. After a second signal: 128 plus its number."""

    STOPPED = 0
    ERROR = 1
    # 2, wrong usage, is reported by click.
    SCHEMA = 3
    DATABASE = 4
    HANDLER = 5
    FORCED = 6
    WAITING = 7


EXIT_CODES = """\b
Exit codes:
    0    stopped gracefully (SIGTERM, SIGINT, SIGHUP); with --once: done
    1    unexpected error; its traceback is in the log
    2    wrong usage
    3    the tables are missing, outdated or altered; the log says how to fix them
    4    the database is unreachable or refuses
    5    a handler raised SystemExit or KeyboardInterrupt
    6    a handler ignored its cancellation, or something else outlasted the grace
         period: ended by force; nothing is lost
    7    with --once: a relay's receiver is unreachable; everything else is done
    130  a second SIGINT: cancelled at once; 143 of SIGTERM, 129 of SIGHUP
"""
