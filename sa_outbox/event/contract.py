"""Which fields an event must have before an outbox takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from ..errors import ConfigError, ContractViolation
from .validation import ACTOR_TYPES

if TYPE_CHECKING:
    from .event import Event

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

        outbox = Outbox(contract=Contract(required=("tenant", "actor_type", "request_id")))
    """

    required: tuple[Field, ...]
    """Of ``tenant``, ``project_id``, ``actor_type``, ``actor_id``, ``request_id``,
    ``correlation_id`` and ``idempotency_key``. They come from the call that adds the event, or
    from ``event_context``; the idempotency key from the call only."""

    def __post_init__(self) -> None:
        if not isinstance(self.required, (tuple, list)) or not self.required:
            raise ConfigError(
                f"required must be a tuple of fields, such as ('tenant',), not {self.required!r}"
            )
        for field in self.required:
            if field not in FIELDS:
                raise ConfigError(f"a contract can require {', '.join(FIELDS)}, not {field!r}")
        object.__setattr__(self, "required", tuple(dict.fromkeys(self.required)))

    def check(self, event: Event[Any]) -> None:
        """Raise :class:`ContractViolation` for the first field that *event* lacks."""
        headers = event.headers
        for field in self.required:
            if field in ("tenant", "idempotency_key"):
                if getattr(event, field) is None:
                    raise ContractViolation(event.event_type, field, _REMEDIES[field])
            elif not headers.get(field) or (
                field == "actor_type" and headers[field] not in ACTOR_TYPES
            ):
                raise ContractViolation(event.event_type, field, _REMEDIES[field])


def _remedy(field: str) -> str:
    if field == "idempotency_key":
        return "Pass idempotency_key=..., as made by stable_key(...)"
    argument = "tenant=..." if field == "tenant" else f'headers={{"{field}": ...}}'
    values = f" (one of {', '.join(ACTOR_TYPES)})" if field == "actor_type" else ""
    return f"Pass {argument}, or add it inside event_context({field}=...){values}"


_REMEDIES: Final = {field: _remedy(field) for field in FIELDS}
