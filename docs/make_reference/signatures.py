"""How something is called: parameters with their types and defaults, one line or one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterable

LINE = 96
_NOT_MADE = {"TypedDict", "Protocol"}


def signatures(found: griffe.Object, name: str) -> list[str]:
    if isinstance(found, griffe.Attribute):
        return [_code([f"{name}: {found.annotation}"])] if found.annotation is not None else []
    functions: Iterable[griffe.Function] = ()
    if isinstance(found, griffe.Function):
        functions = found.overloads or [found]
    elif isinstance(found, griffe.Class):
        functions = _calls(found)
    return [_code([_signature(each, name) for each in functions])] if functions else []


def _calls(found: griffe.Class) -> Iterable[griffe.Function]:
    """How an object of the class is made; or called, if nobody makes one."""
    bases = {str(base).partition("[")[0] for base in found.bases}
    name = "__call__" if bases & _NOT_MADE or is_options(found) else "__init__"
    start = {**found.inherited_members, **found.members}.get(name)
    if start is None or not start.is_function:
        return ()
    function = cast("griffe.Function", start)
    return function.overloads or [function]


def is_options(found: griffe.Class) -> bool:
    """A ``TypedDict``: arguments by name."""
    return any(str(base) == "TypedDict" or str(base).endswith("Options") for base in found.bases)


def _code(signatures: list[str]) -> str:
    return "```text\n" + "\n".join(signatures) + "\n```"


def _signature(function: griffe.Function, name: str) -> str:
    given = [each for each in _parameters(function) if each not in ("self", "cls")]
    returns = "" if function.returns is None or "." in name else f" -> {function.returns}"
    returns = "" if function.name == "__init__" else returns
    start = "async " if "async" in function.labels else ""
    line = f"{start}{name}({', '.join(given)}){returns}"
    if len(line) <= LINE:
        return line
    return f"{start}{name}(\n" + "".join(f"    {each},\n" for each in given) + f"){returns}"


def _parameters(function: griffe.Function) -> list[str]:
    found: list[str] = []
    kinds = [each.kind for each in function.parameters]
    for number, each in enumerate(function.parameters):
        kind = each.kind
        before = kinds[number - 1] if number else None
        if kind is not griffe.ParameterKind.positional_only and (
            before is griffe.ParameterKind.positional_only
        ):
            found.append("/")
        only_by_name = kind is griffe.ParameterKind.keyword_only
        if only_by_name and before not in (kind, griffe.ParameterKind.var_positional):
            found.append("*")
        found.append(_parameter(each))
    if kinds and kinds[-1] is griffe.ParameterKind.positional_only:
        found.append("/")
    if found[:2] == ["self", "/"]:
        found = ["self", *found[2:]]
    return found


def _parameter(parameter: griffe.Parameter) -> str:
    stars = ""
    if parameter.kind is griffe.ParameterKind.var_positional:
        stars = "*"
    elif parameter.kind is griffe.ParameterKind.var_keyword:
        stars = "**"
    annotation = "" if parameter.annotation is None else f": {parameter.annotation}"
    default = "" if stars else default_of(parameter.default, " = " if annotation else "=", "...")
    return f"{stars}{parameter.name}{annotation}{default}"


def default_of(value: object, equals: str, computed: str = "") -> str:
    """*computed*: for one that tells a reader nothing, since it is an expression of ours."""
    if value is None:
        return ""
    text = str(value)
    shown = computed if "lambda" in text or "field(" in text or len(text) > 40 else text
    return f"{equals}{shown}" if shown else ""
