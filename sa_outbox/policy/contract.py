"""Which fields an event must have before an outbox takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from ..errors import ConfigError, ContractViolation
from ..event.type_patterns import MAX_REMEMBERED, matcher, type_pattern
from ..event.validation import ACTOR_TYPES

if TYPE_CHECKING:
    from ..event.event import Event

Field: TypeAlias = Literal[
    "tenant",
    "project_id",
    "actor_type",
    "actor_id",
    "request_id",
    "correlation_id",
    "idempotency_key",
]
FIELDS: Final[tuple[str, ...]] = get_args(Field)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The fields without which no event is added to an outbox.

    ::

        outbox = Outbox(
            contract=Contract(
                required=("tenant", "actor_type", "request_id"),
                by_type={"project.*": ("project_id",)},
            )
        )
    """

    required: tuple[Field, ...] = ()
    """Of every event. Of ``tenant``, ``project_id``, ``actor_type``, ``actor_id``, ``request_id``,
    ``correlation_id`` and ``idempotency_key``. They come from the call that adds the event, or
    from ``event_context``; the idempotency key from the call only."""

    by_type: Mapping[Any, tuple[Field, ...]] = field(default_factory=dict, hash=False)
    """Of events of some types, in addition: names, classes, or patterns with ``*``, to fields. An
    event needs those of all that it matches."""

    required_of: Callable[[str], tuple[Field, ...]] = field(init=False, repr=False, compare=False)
    """The fields that an event of this type must have."""

    def __post_init__(self) -> None:
        if not isinstance(self.by_type, Mapping):
            raise ConfigError(f"by_type must map event types to fields, not {self.by_type!r}")
        by_type = {
            type_pattern("by_type of a contract", one): _checked(f"by_type of {one!r}", fields)
            for one, fields in self.by_type.items()
        }
        if self.required != () or not by_type:
            object.__setattr__(self, "required", _checked("required", self.required))
        object.__setattr__(self, "by_type", by_type)
        object.__setattr__(self, "required_of", _required_of(self.required, by_type))

    def check(self, event: Event[Any]) -> None:
        """Raise :class:`ContractViolation` for the first field that *event* lacks."""
        headers = event.headers
        for name in self.required_of(event.event_type) if self.by_type else self.required:
            if name in ("tenant", "idempotency_key"):
                if getattr(event, name) is None:
                    raise ContractViolation(event.event_type, name, _REMEDIES[name])
            elif not headers.get(name) or (
                name == "actor_type" and headers[name] not in ACTOR_TYPES
            ):
                raise ContractViolation(event.event_type, name, _REMEDIES[name])


def _checked(what: str, fields: object) -> tuple[Field, ...]:
    if not isinstance(fields, (tuple, list)) or not fields:
        raise ConfigError(f"{what} must be a tuple of fields, such as ('tenant',), not {fields!r}")
    for each in fields:
        if each not in FIELDS:
            raise ConfigError(f"a contract can require {', '.join(FIELDS)}, not {each!r}")
    known: list[Field] = fields  # type: ignore[assignment]  # each was compared with them
    return tuple(dict.fromkeys(known))


def _required_of(
    always: tuple[Field, ...], by_type: Mapping[str, tuple[Field, ...]]
) -> Callable[[str], tuple[Field, ...]]:
    several = [(matcher((one,)), fields) for one, fields in by_type.items()]

    @lru_cache(MAX_REMEMBERED)
    def required_of(event_type: str) -> tuple[Field, ...]:
        found: list[Field] = [*always]
        for matches, fields in several:
            if matches(event_type):
                found += fields
        return tuple(dict.fromkeys(found))

    return required_of


def _remedy(field: str) -> str:
    if field == "idempotency_key":
        return "Pass idempotency_key=..., as made by stable_key(...)"
    argument = "tenant=..." if field == "tenant" else f'headers={{"{field}": ...}}'
    values = f" (one of {', '.join(ACTOR_TYPES)})" if field == "actor_type" else ""
    return f"Pass {argument}, or add it inside event_context({field}=...){values}"


_REMEDIES: Final = {field: _remedy(field) for field in FIELDS}
