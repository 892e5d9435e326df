"""The settings of a consumer as options of its command, each with an environment variable."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import re
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sa_outbox.settings import CHOICES, IDLE, RETENTIONS, ConsumerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

MAX_SECONDS = 86_400
MAX_DAYS = 3_653
FOREVER = "forever"
NEVER = "never"


def seconds(value: Any) -> timedelta:
    """A duration, given as a number of seconds."""
    return _span(value, "above 0 and up to")


def seconds_from_zero(value: Any) -> timedelta:
    """A duration, given as a number of seconds; zero is allowed."""
    return timedelta(0) if value == "0" else _span(value, "from 0 to")


def seconds_or_never(value: Any) -> timedelta | None:
    """A duration, given as a number of seconds; or never."""
    return None if str(value).strip().lower() == NEVER else _span(value, "above 0 and up to")


def days(value: Any) -> timedelta | None:
    """How long something is kept, as a number of days; or forever."""
    if str(value).strip().lower() == FOREVER:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number <= MAX_DAYS:
        raise click.BadParameter(
            f"{value!r} is not a number of days above 0 and up to {MAX_DAYS}, or {FOREVER!r}"
        )
    return timedelta(days=number)


def _span(value: Any, limits: str) -> timedelta:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    # The limits of ConsumerSettings, phrased for a command line; nan is outside them.
    if not 0 < number <= MAX_SECONDS:
        raise click.BadParameter(f"{value!r} is not a number of seconds {limits} {MAX_SECONDS}")
    return timedelta(seconds=number)


def setting_options(command: F) -> F:
    """Add an option for every field of ``ConsumerSettings``, in order."""
    sentences = _first_sentences(ConsumerSettings)
    for each in reversed(fields(ConsumerSettings)):
        command = _option(each.name, each.default, sentences.get(each.name))(command)
    return command


def monitor_options(command: F) -> F:
    """``--monitor-port``, ``--monitor-host``, ``--metrics`` and ``--observer``."""
    for option in (
        click.option(
            "--observer",
            "observers",
            metavar="MODULE:ATTRIBUTE",
            multiple=True,
            envvar=variable("observers"),
            show_envvar=True,
            help="Call this with each observation; repeatable (in the variable: separated by "
            "spaces).",
        ),
        click.option(
            "--metrics",
            is_flag=True,
            envvar=variable("metrics"),
            show_envvar=True,
            help="Serve /metrics for Prometheus too. Needs the extra sa_outbox[prometheus].",
        ),
        click.option(
            "--monitor-host",
            metavar="ADDRESS",
            default="127.0.0.1",
            show_default=True,
            envvar=variable("monitor_host"),
            show_envvar=True,
            help="Where the monitor listens. It has no password.",
        ),
        click.option(
            "--monitor-port",
            metavar="PORT",
            type=click.IntRange(0, 65_535),
            envvar=variable("monitor_port"),
            show_envvar=True,
            help="Serve /healthz and /readyz on this port; 0: any that is free, the log says "
            "which.  [default: no monitor]",
        ),
    ):
        command = option(command)
    return command


def retention_options(command: F) -> F:
    """Add only the options for how long something is kept, for ``prune``."""
    sentences = _first_sentences(ConsumerSettings)
    defaults = {each.name: each.default for each in fields(ConsumerSettings)}
    for name in reversed(RETENTIONS):
        command = _option(name, defaults[name], sentences.get(name))(command)
    return command


def _option(name: str, default: Any, help_text: str | None) -> Callable[[F], F]:
    kind: Any = click.IntRange(min=1)
    metavar: str | None = "NUMBER"
    shown = default
    if name in CHOICES:
        kind, metavar = click.Choice(CHOICES[name]), None
    elif name in IDLE:
        kind, metavar, shown = seconds_or_never, "SECONDS", NEVER
    elif name in RETENTIONS:
        kind, metavar, shown = days, "DAYS", f"{default / timedelta(days=1):g}"
    elif isinstance(default, timedelta):
        kind, metavar, shown = seconds, "SECONDS", f"{default.total_seconds():g}"
    return click.option(
        "--" + name.replace("_", "-"),
        name,
        type=kind,
        metavar=metavar,
        default=shown,
        show_default=True,
        envvar=variable(name),
        show_envvar=True,
        help=help_text,
    )


def variable(name: str) -> str:
    """The environment variable of an option."""
    return f"SA_OUTBOX_{name.upper()}"


def _first_sentences(cls: type) -> dict[str, str]:
    """The first sentence of each field's docstring, which only the source has."""
    try:
        tree = ast.parse(inspect.getsource(cls))
    except OSError:  # installed without sources: the options still work
        return {}
    found: dict[str, str] = {}
    for node in tree.body:
        for field, below in itertools.pairwise(getattr(node, "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                    words = " ".join(text.replace("``", "").split())
                    found[name] = re.split(r"(?<=\.)\s", words, maxsplit=1)[0]
                case _:
                    pass
    return found
