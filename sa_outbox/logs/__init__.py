"""What a consumer logs.

==============  ==================================================================================
``lines.py``    which line each observation is: its level and its text
``log.py``      the observer that writes them, to any logger
``program.py``  the logger of the program that a consumer runs in
==============  ==================================================================================

Imports ``observe``, ``settings`` and the rooms below them; never structlog, but it uses it if the
program does. ``consume/logs.py`` writes the lines of ``python -m sa_outbox.consume``.
"""

from .lines import LEVELS, LINES, Level
from .log import Log
from .program import program_log

__all__ = ["LEVELS", "LINES", "Level", "Log", "program_log"]
