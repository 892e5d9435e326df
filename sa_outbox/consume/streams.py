"""The standard streams of a process whose parent has closed them, or whose reader is gone."""

from __future__ import annotations

import os
import sys


def hold_standard_streams() -> None:
    """Started without them (``>&-``), the next connection would get descriptor 1, and a program
    that prints would write into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def forget_closed_streams() -> None:
    """Otherwise what is left in their buffers would raise at exit and lead to exit code 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
