"""Objects of classes, in the form in which their own library writes and reads JSON.

pydantic models and dataclasses go through pydantic's JSON mode. Dataclasses, attrs classes and
``msgspec.Struct`` go by their fields, and are read by msgspec.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

PLAIN: Final = frozenset({str, int, bool, type(None)})
_COLLECTIONS: Final = (list, tuple, set, frozenset, deque)
_FIELDS: Final = ("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "model_fields")


class UnfitError(Exception):
    """A value that can't be JSON, with the path that led to it, innermost step first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.steps: list[str] = []

    @property
    def path(self) -> str:
        return "$" + "".join(reversed(self.steps))


def step(name: object) -> str:
    """A key as part of a path: short and printable, whatever it is."""
    return f".{ascii(name)[1:-1]:.40}" if isinstance(name, str) else f"[{name!a:.40}]"


def has_fields(cls: type) -> bool:
    """Whether it is a class of one of the four kinds."""
    return any(hasattr(cls, each) for each in _FIELDS)


def content_of(value: object, room: int) -> object:
    """What *value* consists of: fields by name, or a list. Raises :class:`UnfitError`."""
    kind = type(value)
    if hasattr(kind, "__mapper__"):  # first: a mapped class may be a dataclass too
        raise UnfitError(
            f"{kind.__qualname__} is a mapped entity: put the values you need into the payload"
        )
    if hasattr(kind, "get_secret_value"):
        raise _secret(kind)
    if isinstance(value, msgspec.Struct):
        return _content_of_struct(value)
    dump = _pydantic_dump(value, kind)
    if dump is not None:
        return _dumped(dump, room)
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    elif (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        names = [each.name for each in attributes]
    else:
        raise UnfitError(f"{kind.__qualname__} is not JSON")
    return _set_ones(_read(lambda: {name: getattr(value, name) for name in names}))


def _secret(kind: type) -> UnfitError:
    return UnfitError(
        f"{kind.__qualname__} is a secret: its JSON form is asterisks, and secrets do not belong "
        "in payloads, which are stored unencrypted. Leave it out, or put in a reference to it"
    )


def _content_of_struct(value: msgspec.Struct) -> object:
    """As msgspec would encode it: renamed, tagged, as an array if that is how it is read."""
    config = value.__struct_config__
    values = [getattr(value, name) for name in value.__struct_fields__]
    if config.array_like:
        return values if config.tag is None else [config.tag, *values]
    fields: dict[str, object] = {}
    if config.tag_field is not None and config.tag is not None:
        fields[config.tag_field] = config.tag
    fields.update(zip(value.__struct_encode_fields__, values, strict=True))
    return _set_ones(fields)


def _set_ones(fields: dict[str, object]) -> dict[str, object]:
    return {name: each for name, each in fields.items() if each is not msgspec.UNSET}


def _pydantic_dump(value: object, kind: type) -> Callable[..., object] | None:
    """What writes an object of pydantic; None if it is none. Not imported: few programs have it."""
    if isinstance(value, type):
        return None
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if dump is None and (serializer := kind.__dict__.get("__pydantic_serializer__")) is not None:
        return lambda **options: serializer.to_python(value, **options)
    return dump


def _dumped(dump: Callable[..., object], room: int) -> object:
    """In JSON mode, which knows every type of field; the other mode shows what JSON would hide."""
    shown = _read(lambda: dump(by_alias=True, round_trip=True, warnings=False))
    _refuse_hidden(shown, room)
    return _read(lambda: dump(mode="json", by_alias=True, round_trip=True))


def _refuse_hidden(value: Any, room: int) -> None:
    """Refuse secrets, and times without time zone: both are text in JSON mode. And iterators: what
    one looks into is gone."""
    if hasattr(type(value), "get_secret_value"):
        raise _secret(type(value))
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise UnfitError("a datetime without time zone: make it aware")
    if isinstance(value, Iterator):
        raise UnfitError("an iterator can be read only once: make it a list")
    if isinstance(value, Mapping):
        inside = [(step(name), each) for name, each in value.items()]
        inside += [(step(name), name) for name in value]
    elif isinstance(value, _COLLECTIONS):
        inside = [(f"[{index}]", each) for index, each in enumerate(value)]
    else:
        return
    if room < 1:
        raise UnfitError("nested too deeply, or within itself")
    for where, each in inside:
        if type(each) in PLAIN:
            continue
        try:
            _refuse_hidden(each, room - 1)
        except UnfitError as unfit:
            unfit.steps.append(where)
            raise


def _read(content: Callable[[], Any]) -> Any:
    # A property, validator or lazy attribute is user code: if it fails, the payload is at fault.
    try:
        return content()
    except Exception as error:
        raise UnfitError(f"reading it failed: {type(error).__name__}") from error


def object_of(cls: Any, payload: Any) -> Any:
    """The object that *payload*, decoded JSON, describes.

    Raises ValueError or TypeError if it does not fit.
    """
    read = getattr(cls, "model_validate_json", None)
    if read is None and (made := getattr(cls, "__dict__", {}).get("__pydantic_validator__")):
        read = made.validate_json
    if read is not None:
        # From text: a strict model takes a UUID as text only if it knows that this is JSON.
        return read(msgspec.json.encode(payload))
    return msgspec.convert(payload, cls, str_keys=True, dec_hook=_nested)


def _nested(cls: type, payload: Any) -> Any:
    """A field of a type that msgspec does not know."""
    if not hasattr(cls, "model_validate_json"):
        raise TypeError(f"{cls.__qualname__} can't be read from JSON")
    return object_of(cls, payload)
