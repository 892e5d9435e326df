"""From ``module:attribute`` to the outbox or observer it names; each way to get it wrong has its
own message."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from sa_outbox.policy.checks import did_you_mean

from ..errors import ConfigError
from ..outbox import Outbox
from ..policy.error.masking import clean

if TYPE_CHECKING:
    from types import ModuleType

    from ..observe import Observer

MAX_FRAMES = 3
"""How many of the last frames are shown for a module that can't be imported."""
_MACHINERY = ("<frozen importlib", importlib.__file__, __file__)


def load_outbox(target: str) -> Outbox:
    """The outbox at *target*, as in ``shop.app:outbox``; the attribute may have dots.

    Modules are also found in the current folder, unless Python runs with ``python -P`` or
    ``PYTHONSAFEPATH``. Raises :class:`ConfigError`, with one line or a few.
    """
    found, module, path = _load(target, "outbox")
    if not isinstance(found, Outbox):
        raise ConfigError(f"{target} is not an Outbox but {_kind(found)}{_outboxes(module, path)}")
    return found


def load_observer(target: str) -> Observer:
    """The observer at *target*, as in ``shop.metrics:observe``: something that can be called with
    an observation. Found like an outbox. Raises :class:`ConfigError`."""
    found, _, _ = _load(target, "observe")
    if not callable(found) or isinstance(found, type):
        raise ConfigError(
            f"{target} is not an observer but {_kind(found)}: name a function that takes an "
            "observation, or an object that can be called with one"
        )
    called = found if inspect.isroutine(found) else type(found).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigError(f"{target} is async: nobody would await it. An observer is a plain def")
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{target} can't be called with one argument, the observation: {error}"
        ) from error
    except ValueError:  # a builtin that does not say what it takes
        pass
    return found


def _load(target: str, example: str) -> tuple[object, ModuleType, str]:
    """What is at *target*, its module, and that module's name."""
    path, _, attribute = target.partition(":")
    if not path or not attribute:
        raise ConfigError(f"{target!r} is not module:attribute, as in {_example(path)}:{example}")
    if path.endswith(".py") or os.sep in path:
        raise ConfigError(f"{path!r} is a file; as a module: {_example(path)}:{attribute}")
    here = str(Path.cwd())
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    module = _import(path)
    found: object = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(_missing(module, found, path, name)) from error
    return found, module, path


def _import(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        # The module itself or a package it is in; any other name is a module that it tried to
        # import.
        if error.name is not None and f"{path}.".startswith(f"{error.name}."):
            raise ConfigError(_no_module(path, error.name)) from error
        raise ConfigError(_failed(path, error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(_failed(path, error)) from error


def _no_module(path: str, missing: str) -> str:
    parent, _, _ = missing.rpartition(".")
    within = getattr(sys.modules.get(parent), "__path__", None) if parent else [str(Path.cwd())]
    names = [each.name for each in pkgutil.iter_modules(within)] if within is not None else []
    near = did_you_mean(missing.rpartition(".")[2], names)
    where = f"in {parent}" if parent else f"in {Path.cwd()}, nor installed"
    what = f"{missing!r}" if missing == path else f"{missing!r} of {path!r}"
    return f"there is no module {what} {where}{near}"


def _failed(path: str, error: BaseException) -> str:
    """What the module raised, and where: the end of its traceback, without the import system."""
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not each.filename.startswith(_MACHINERY)
    ]
    lines = traceback.format_list(frames[-MAX_FRAMES:])
    lines += traceback.format_exception_only(error)
    # The text comes from the program: it may contain a URL with its password.
    return f"{path} can't be imported:\n{clean(''.join(lines).rstrip())}"


def _missing(module: ModuleType, found: object, path: str, name: str) -> str:
    names = [each for each in dir(found) if not each.startswith("__")]
    whose = path if found is module else f"{_kind(found)} in {path}"
    near = did_you_mean(name, names)
    return f"{whose} has no attribute {name!r}{near or _outboxes(module, path)}"


def _outboxes(module: ModuleType, path: str) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Outbox)]
    return f"; its outboxes: {', '.join(f'{path}:{name}' for name in names)}" if names else ""


def _example(path: str) -> str:
    """A file path, or nothing, as the name of a module."""
    return path.removesuffix(".py").strip("./").replace(os.sep, ".") or "shop.app"


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    noun = type(value).__name__
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
