"""The Outbox object, as far as it needs no database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_outbox import AsyncOutboxSession, Outbox, OutboxSession
from sa_outbox.errors import ConfigError, NotInstalled
from sa_outbox.settings import Limits


class TestMakingOne:
    def test_its_arguments_become_settings(self) -> None:
        limits = Limits(max_payload_bytes=10)
        outbox = Outbox(
            schema="app",
            prefix="events",
            channel="wake",
            notify="off",
            limits=limits,
            idempotency_key_lifetime=timedelta(hours=1),
        )

        assert outbox.settings.names.schema == "app"
        assert outbox.settings.names.prefix == "events"
        assert outbox.settings.names.notify_channel == "wake"
        assert not outbox.settings.notifies
        assert outbox.limits is limits
        assert outbox.settings.idempotency_key_lifetime == timedelta(hours=1)
        assert outbox.tables.outbox.fullname == "app.events"

    @pytest.mark.parametrize(
        "options",
        [
            {"schema": 'x"; DROP TABLE y; --'},
            {"prefix": "x" * 64},
            {"channel": ""},
            {"notify": "maybe"},
            {"idempotency_key_lifetime": timedelta(0)},
        ],
        ids=str,
    )
    def test_a_bad_setting_is_refused_at_construction(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            Outbox(**options)

    def test_a_bad_environment_is_refused_at_construction(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SA_OUTBOX_NOTIFY", "maybe")

        with pytest.raises(ConfigError):
            Outbox()

    def test_its_repr_tells_where_it_is(self) -> None:
        assert repr(Outbox(schema="app")) == "Outbox(schema='app', prefix='outbox')"


class TestFactories:
    def test_the_sessions_have_add_event(self) -> None:
        outbox = Outbox()

        assert isinstance(outbox.sessionmaker()(), OutboxSession)
        assert isinstance(outbox.async_sessionmaker()(), AsyncOutboxSession)

    def test_a_session_class_of_the_users_own_is_kept(self) -> None:
        class Mine(OutboxSession):
            pass

        assert isinstance(Outbox().sessionmaker(class_=Mine)(), Mine)

    def test_other_options_reach_the_session(self) -> None:
        engine = create_engine("postgresql+psycopg://")

        session = Outbox().sessionmaker(engine, autoflush=False, expire_on_commit=False)()

        assert not session.autoflush
        assert not session.expire_on_commit
        assert session.get_bind() is engine


class TestInstall:
    @pytest.mark.parametrize(
        "make",
        [
            sessionmaker,
            async_sessionmaker,
            lambda: scoped_session(sessionmaker()),
            lambda: async_scoped_session(async_sessionmaker(), scopefunc=lambda: 1),
            lambda: type("Mine", (Session,), {}),
            lambda: type("Mine", (AsyncSession,), {}),
        ],
    )
    def test_it_returns_what_it_was_given_and_may_be_repeated(self, make: Any) -> None:
        outbox, target = Outbox(), make()

        assert outbox.install(target) is target
        assert outbox.install(target) is target

    @pytest.mark.parametrize(
        "target", [None, 1, "Session", object(), int, Session(), sessionmaker()()]
    )
    def test_what_is_no_factory_is_refused(self, target: object) -> None:
        with pytest.raises(ConfigError, match="install"):
            Outbox().install(target)

    def test_hooking_one_factory_leaves_others_alone(self) -> None:
        outbox = Outbox()
        outbox.install(sessionmaker())
        outbox.install(async_sessionmaker())

        with pytest.raises(NotInstalled):
            outbox.add(Session(), "a")
        with pytest.raises(NotInstalled):
            outbox.add(AsyncSession(), "a")

    def test_a_session_of_another_outbox_is_refused(self) -> None:
        session = Outbox().sessionmaker()()

        with pytest.raises(NotInstalled, match="Nothing was added"):
            Outbox().add(session, "a")

    def test_a_session_made_without_an_outbox_is_refused_with_advice(self) -> None:
        with pytest.raises(NotInstalled, match=r"outbox\.sessionmaker"):
            OutboxSession().add_event("a")

    @pytest.mark.parametrize("session", [None, 1, object(), sessionmaker()])
    def test_what_is_no_session_is_refused(self, session: Any) -> None:
        with pytest.raises(ConfigError, match="not a session"):
            Outbox().add(session, "a")


class TestPending:
    def test_events_wait_in_their_order_until_the_session_is_closed(self) -> None:
        outbox = Outbox()
        session = outbox.sessionmaker()()

        assert outbox.pending(session) == ()
        first, second = session.add_event("a"), session.add_event("b", {"n": 1})
        assert outbox.pending(session) == (first, second)
        session.close()
        assert outbox.pending(session) == ()
