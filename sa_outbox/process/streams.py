"""The standard streams of a process whose parent has closed them, or whose reader has gone."""

from __future__ import annotations

import os
import sys


def hold_standard_streams() -> None:
    """Started without them (``>&-``), the next connection would get number 1: a program that
    prints would write into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def forget_closed_streams() -> None:
    """What is still in their buffers would be an error at exit, and its exit code 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
