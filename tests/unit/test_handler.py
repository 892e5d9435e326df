"""How a handler wants to be called, read from its signature."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, List, NamedTuple, Optional, TypeVar  # noqa: UP035 - people have them

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import AsyncOutboxSession, Event, OutboxSession
from sa_outbox.declare.handler import Call, inspect_handler
from sa_outbox.errors import ConfigError
from sa_outbox.event.event import Json
from sa_outbox.event.wanted import wanted

if TYPE_CHECKING:
    from somewhere import Elsewhere  # type: ignore[import-not-found]  # that is the point

T = TypeVar("T")


@dataclass
class OrderPlaced:
    order_id: int


class Pair(NamedTuple):
    left: int
    right: int


def call_of(handler: Any) -> Call:
    return inspect_handler("billing", handler)


def call(
    *,
    is_async: bool = True,
    session: Any = "none",
    batch: bool = False,
    payload_class: Any = None,
) -> Call:
    payload = None if payload_class is None else wanted(payload_class)
    return Call(is_async=is_async, session=session, batch=batch, payload=payload)


# Handlers that are right, each with what is to be read from it.


async def takes_an_event(event: Event[Any]) -> None: ...
async def takes_anything(event): ...  # type: ignore[no-untyped-def]  # as many are written
async def takes_an_object(event: object) -> None: ...
async def takes_a_bare_event(event: Event) -> None: ...
async def takes_json(event: Event[Json]) -> None: ...
async def takes_a_dict(event: Event[dict[str, Any]]) -> None: ...
async def takes_a_type_variable(event: Event[T]) -> None: ...
async def takes_a_payload(event: Event[OrderPlaced]) -> None: ...
async def takes_it_by_position(event: Event[OrderPlaced], /) -> None: ...
async def takes_it_annotated(event: Annotated[Event[OrderPlaced], "note"]) -> None: ...
async def takes_more_than_it_needs(event: Event[Any], *rest: Any, **more: Any) -> None: ...
async def has_an_option(event: Event[Any], dry_run: bool = False) -> None: ...
async def has_an_option_by_name(event: Event[Any], *, dry_run: bool = False) -> None: ...


async def takes_a_session(event: Event[Any], session: AsyncSession) -> None: ...
async def takes_our_session(event: Event[Any], session: AsyncOutboxSession) -> None: ...
async def takes_any_session(event, session): ...  # type: ignore[no-untyped-def]  # a user's
async def names_it_otherwise(event: Event[Any], db: AsyncSession) -> None: ...
async def takes_whatever_it_is(event, whatever): ...  # type: ignore[no-untyped-def]  # a user's
async def takes_it_if_there_is_one(
    event: Event[Any],
    session: Optional[AsyncSession] = None,  # noqa: UP045 - as many are written
) -> None: ...
async def takes_an_annotated_session(
    event: Event[OrderPlaced], db: Annotated[AsyncSession, "injected"]
) -> None: ...


async def takes_a_batch(events: Sequence[Event[Any]]) -> None: ...
async def takes_a_list(events: list[Event[OrderPlaced]], session: AsyncSession) -> None: ...
async def takes_an_old_list(events: List[Event[OrderPlaced]]) -> None: ...  # noqa: UP006 - a user's
async def takes_a_tuple(events: tuple[Event[OrderPlaced], ...]) -> None: ...
async def takes_a_bare_list(events: list) -> None: ...  # type: ignore[type-arg]  # a user's


def is_sync(event: Event[OrderPlaced]) -> None: ...
def is_sync_with_a_session(event: Event[Any], session: Session) -> None: ...
def is_sync_with_our_session(event: Event[Any], session: OutboxSession) -> None: ...
def is_sync_and_takes_a_batch(events: Sequence[Event[Any]], session: Session) -> None: ...


async def names_what_is_not_there(event: Event[Elsewhere]) -> None: ...
async def names_a_batch_of_it(events: Sequence[Event[Elsewhere]]) -> None: ...
async def names_a_session_of_it(event: Event[Elsewhere], db: AsyncOutboxSession) -> None: ...
def names_it_and_is_sync(event: Event[Elsewhere], session: Session) -> None: ...


ASYNC = call()
BATCH = call(batch=True)
WITH_SESSION = call(session="async")


class TestFunctions:
    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (takes_an_event, ASYNC),
            (takes_anything, ASYNC),
            (takes_an_object, ASYNC),
            (takes_a_bare_event, ASYNC),
            (takes_json, call(payload_class="Json")),  # an alias that is a text
            (takes_a_dict, ASYNC),
            (takes_a_type_variable, ASYNC),
            (takes_a_payload, call(payload_class=OrderPlaced)),
            (takes_it_by_position, call(payload_class=OrderPlaced)),
            (takes_it_annotated, call(payload_class=OrderPlaced)),
            (takes_more_than_it_needs, ASYNC),
            (has_an_option, ASYNC),
            (has_an_option_by_name, ASYNC),
        ],
    )
    def test_an_event_alone(self, handler: Any, expected: Call) -> None:
        assert call_of(handler) == expected

    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (takes_a_session, WITH_SESSION),
            (takes_our_session, WITH_SESSION),
            (takes_any_session, WITH_SESSION),
            (names_it_otherwise, WITH_SESSION),
            (takes_whatever_it_is, WITH_SESSION),
            (takes_it_if_there_is_one, WITH_SESSION),
            (takes_an_annotated_session, call(session="async", payload_class=OrderPlaced)),
        ],
    )
    def test_with_a_session(self, handler: Any, expected: Call) -> None:
        assert call_of(handler) == expected

    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (takes_a_batch, BATCH),
            (takes_a_list, call(session="async", batch=True, payload_class=OrderPlaced)),
            (takes_an_old_list, call(batch=True, payload_class=OrderPlaced)),
            (takes_a_tuple, call(batch=True, payload_class=OrderPlaced)),
            (takes_a_bare_list, BATCH),
        ],
    )
    def test_a_batch(self, handler: Any, expected: Call) -> None:
        assert call_of(handler) == expected

    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (is_sync, call(is_async=False, payload_class=OrderPlaced)),
            (is_sync_with_a_session, call(is_async=False, session="sync")),
            (is_sync_with_our_session, call(is_async=False, session="sync")),
            (is_sync_and_takes_a_batch, call(is_async=False, session="sync", batch=True)),
            (lambda event: None, call(is_async=False)),
            (lambda event, session: None, call(is_async=False, session="sync")),
        ],
    )
    def test_a_sync_one(self, handler: Any, expected: Call) -> None:
        assert call_of(handler) == expected

    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (names_what_is_not_there, call(payload_class="Elsewhere")),
            (names_a_batch_of_it, call(batch=True, payload_class="Elsewhere")),
            (names_a_session_of_it, call(session="async", payload_class="Elsewhere")),
            (names_it_and_is_sync, call(is_async=False, session="sync", payload_class="Elsewhere")),
        ],
    )
    def test_names_imported_for_the_type_checker_only_do_no_harm(
        self, handler: Any, expected: Call
    ) -> None:
        assert call_of(handler) == expected

    def test_a_name_that_is_not_there_spoils_no_other(self) -> None:
        """Linters move a session's import under TYPE_CHECKING; the payload's class stays."""

        async def handler(event: Event[OrderPlaced], session: Elsewhere) -> None: ...

        assert call_of(handler) == call(session="async", payload_class=OrderPlaced)

    @pytest.mark.parametrize(
        ("annotation", "batch"),
        [
            ("Event", False),
            ("Event[Elsewhere]", False),
            ("sa_outbox.Event[Elsewhere]", False),
            ("Sequence[Event[Elsewhere]]", True),
            ("collections.abc.Sequence[Event[Elsewhere]]", True),
            ("list[Elsewhere]", True),
            ("tuple[Event[Elsewhere], ...]", True),
            ("Elsewhere", False),
        ],
    )
    def test_an_annotation_that_is_only_text_is_read_as_text(
        self, annotation: str, batch: bool
    ) -> None:
        async def handler(event: Any, other: Elsewhere = None) -> None: ...

        handler.__annotations__["event"] = annotation

        names = "Elsewhere" if "Event[" in annotation else None
        assert call_of(handler) == call(batch=batch, payload_class=names)


class OwnAsyncSession(AsyncSession):
    pass


class OwnSession(OutboxSession):
    pass


class TestSessionClass:
    """A handler gets a session of the class that it names."""

    def test_a_class_of_the_programs_own_is_remembered(self) -> None:
        async def asks(event: Event, session: OwnAsyncSession) -> None: ...
        def asks_in_a_thread(event: Event, session: OwnSession) -> None: ...

        assert call_of(asks).session_class is OwnAsyncSession
        assert call_of(asks_in_a_thread).session_class is OwnSession

    @pytest.mark.parametrize("cls", [AsyncSession, AsyncOutboxSession, object, Any, "Elsewhere"])
    def test_any_session_is_one_of_sqlalchemys_and_of_ours(self, cls: Any) -> None:
        async def asks(event: Event, session: Any) -> None: ...

        asks.__annotations__["session"] = cls

        assert call_of(asks).session_class is None

    def test_a_class_that_does_not_go_with_ours_is_refused_at_once(self) -> None:
        async def asks(event: Event, session: AsyncSession) -> None: ...

        asks.__annotations__["session"] = OddMeta("Odd", (AsyncSession,), {})

        with pytest.raises(ConfigError, match="no handler's session can be made"):
            call_of(asks)


class OddMeta(type):
    """Of classes that have no others beside them."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        if len(bases) > 1:
            raise TypeError("alone, or not at all")
        super().__init__(name, bases, attributes)


class Service:
    async def on_event(self, event: Event[OrderPlaced], session: AsyncSession) -> None: ...

    @classmethod
    async def on_class(cls, event: Event[OrderPlaced]) -> None: ...

    @staticmethod
    def on_nothing(event: Event[OrderPlaced]) -> None: ...


class AsyncObject:
    async def __call__(self, event: Event[OrderPlaced], session: AsyncSession) -> None: ...


class SyncObject:
    def __call__(self, events: Sequence[Event[OrderPlaced]]) -> None: ...


async def wants_a_client(
    client: object, event: Event[OrderPlaced], session: AsyncSession
) -> None: ...


class TestOtherCallables:
    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (Service().on_event, call(session="async", payload_class=OrderPlaced)),
            (Service.on_class, call(payload_class=OrderPlaced)),
            (Service().on_nothing, call(is_async=False, payload_class=OrderPlaced)),
            (AsyncObject(), call(session="async", payload_class=OrderPlaced)),
            (SyncObject(), call(is_async=False, batch=True, payload_class=OrderPlaced)),
        ],
        ids=["method", "class method", "static method", "async object", "sync object"],
    )
    def test_methods_and_objects(self, handler: Any, expected: Call) -> None:
        assert call_of(handler) == expected

    def test_a_partial_is_called_like_what_is_in_it(self) -> None:
        once = functools.partial(wants_a_client, object())
        twice = functools.partial(functools.partial(wants_a_client), object())

        expected = call(session="async", payload_class=OrderPlaced)
        assert call_of(once) == call_of(twice) == expected

    def test_a_partial_of_an_object_or_a_method_too(self) -> None:
        assert call_of(functools.partial(AsyncObject())) == call_of(AsyncObject())
        assert call_of(functools.partial(Service().on_event)) == call_of(Service().on_event)

    def test_a_decorated_function_is_read_through_its_decorator(self) -> None:
        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            async def wrapped(*args: Any) -> None:
                await function(*args)

            return wrapped

        assert call_of(decorator(takes_a_list)) == call_of(takes_a_list)


class TestWrongOnes:
    @pytest.mark.parametrize("handler", [None, 5, "billing", Event], ids=repr)
    def test_something_that_can_not_be_called_with_an_event(self, handler: Any) -> None:
        with pytest.raises(ConfigError, match="'billing'"):
            call_of(handler)

    def test_no_argument(self) -> None:
        async def handler() -> None: ...

        with pytest.raises(ConfigError, match=r"\(event\) or \(event, session\), it takes 0"):
            call_of(handler)

    def test_too_many_arguments(self) -> None:
        async def handler(event: Event[Any], session: AsyncSession, client: object) -> None: ...

        with pytest.raises(ConfigError, match="it takes 3"):
            call_of(handler)

    def test_an_argument_that_nobody_passes(self) -> None:
        async def handler(event: Event[Any], *, client: object, clock: object) -> None: ...

        with pytest.raises(ConfigError, match="needs client, clock by keyword"):
            call_of(handler)

    def test_a_method_of_a_class_without_its_object(self) -> None:
        with pytest.raises(ConfigError, match="takes 3"):
            call_of(Service.on_event)

    def test_a_function_without_a_signature(self) -> None:
        with pytest.raises(ConfigError, match=r"signature|arguments"):
            call_of(type)

    @pytest.mark.parametrize(
        "annotation", [OrderPlaced, int, str, Event[Any] | None, set[Event[Any]]], ids=str
    )
    def test_an_event_that_is_annotated_as_something_else(self, annotation: Any) -> None:
        async def handler(event: Any) -> None: ...

        handler.__annotations__["event"] = annotation

        with pytest.raises(ConfigError, match="must be Event, Event\\[SomePayload\\] or Seq"):
            call_of(handler)

    @pytest.mark.parametrize("annotation", [Pair, bytes, list[OrderPlaced]], ids=str)
    def test_a_sequence_of_something_else_is_no_batch(self, annotation: Any) -> None:
        async def handler(event: Any) -> None: ...

        handler.__annotations__["event"] = annotation

        with pytest.raises(ConfigError):
            call_of(handler)

    def test_an_async_handler_can_not_have_a_sync_session(self) -> None:
        async def handler(event: Event[Any], session: Session) -> None: ...

        with pytest.raises(ConfigError, match="is async and asks for Session: an async handler"):
            call_of(handler)

    def test_a_sync_handler_can_not_have_an_async_session(self) -> None:
        def handler(event: Event[Any], session: AsyncSession) -> None: ...

        with pytest.raises(ConfigError, match="is sync and asks for AsyncSession"):
            call_of(handler)

    def test_a_second_argument_that_is_no_session(self) -> None:
        async def handler(event: Event[Any], client: dict[str, Any]) -> None: ...

        with pytest.raises(ConfigError, match="second argument of listener 'billing' must be a se"):
            call_of(handler)

    def test_a_generator_whose_body_nobody_would_run(self) -> None:
        def handler(event: Event[Any]) -> Iterator[None]:
            yield

        with pytest.raises(ConfigError):
            call_of(handler)

    def test_an_async_generator_whose_body_nobody_would_run(self) -> None:
        async def handler(event: Event[Any]) -> AsyncIterator[None]:
            yield

        with pytest.raises(ConfigError):
            call_of(handler)
