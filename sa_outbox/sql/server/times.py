"""Intervals to times that may be infinite: up to PostgreSQL 16 nothing can be subtracted from
infinity, and one event would fail the statement for all."""

from __future__ import annotations


def seconds_until(time: str) -> str:
    """SQL for the seconds until *time*; infinite if that is."""
    return (
        f"CAST(CASE WHEN isfinite({time}) THEN extract(epoch FROM {time} - clock_timestamp())"
        f" ELSE extract(epoch FROM {time}) END AS float8)"
    )


def since(time: str) -> str:
    """SQL for the interval since *time*; none if that is infinite."""
    return f"CASE WHEN isfinite({time}) THEN clock_timestamp() - {time} END"
