"""From ``module:attribute`` to the outbox it names; every way to get it wrong has its answer."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigError
from .failure import clean
from .outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

MOST_FRAMES = 3
"""Of the way into a module that can't be imported, the last."""
_MACHINERY = ("<frozen importlib", importlib.__file__, __file__)


def load_outbox(target: str) -> Outbox:
    """The outbox at *target*, as in ``shop.app:outbox``; the attribute may have dots.

    Modules are found in the current folder too. Raises :class:`ConfigError`, one line or a few.
    """
    path, _, attribute = target.partition(":")
    if not path or not attribute:
        raise ConfigError(f"{target!r} is not module:attribute, as in {_example(path)}:outbox")
    if path.endswith(".py") or os.sep in path:
        raise ConfigError(f"{path!r} is a file; as a module: {_example(path)}:{attribute}")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    module = _import(path)
    found: object = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(_missing(module, found, path, name)) from error
    if not isinstance(found, Outbox):
        raise ConfigError(f"{target} is not an Outbox but {_kind(found)}{_outboxes(module, path)}")
    return found


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``; did you mean 'outbox'?`` if one of *names* is near, else nothing."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _import(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        # Itself or a package it is in; any other name is a module that it tried to import.
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
    lines = traceback.format_list(frames[-MOST_FRAMES:])
    lines += traceback.format_exception_only(error)
    # The text is the program's: an address with its password may be in it.
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
    """A path to a file, or nothing, as the name of a module."""
    return path.removesuffix(".py").strip("./").replace(os.sep, ".") or "shop.app"


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    noun = type(value).__name__
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
