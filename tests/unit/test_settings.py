"""Names, limits and settings: refused when they are made, before any statement is built."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.database.names import check_identifier
from sa_outbox.errors import ConfigError
from sa_outbox.settings import Limits, Names, Settings

BAD_IDENTIFIERS = [
    "",
    " ",
    'x"; DROP TABLE y; --',
    "x; CREATE TABLE pwned (id int)",
    "x'--",
    "x y",
    "x-y",
    "x.y",
    "x\n",
    "x\x00",
    "1x",
    "größe",
    "\uff4futbox",
    "outbox😀",
    "\ud800",
    "$x",
    "pg_outbox",
    "PG_outbox",
    "pg_",
]


class TestNames:
    @pytest.mark.parametrize("field", ["schema", "prefix", "channel"])
    @pytest.mark.parametrize("value", BAD_IDENTIFIERS, ids=ascii)
    def test_a_name_that_needs_quoting_or_hides_a_statement_is_refused(
        self, field: str, value: str
    ) -> None:
        with pytest.raises(ConfigError, match=field):
            Names(**{field: value})

    @pytest.mark.parametrize("field", ["schema", "prefix", "channel"])
    @pytest.mark.parametrize("value", [1, b"x", ["x"], True])
    def test_a_name_that_is_not_text_is_refused(self, field: str, value: Any) -> None:
        with pytest.raises(ConfigError, match=field):
            Names(**{field: value})

    def test_a_prefix_is_needed(self) -> None:
        with pytest.raises(ConfigError, match="prefix"):
            Names(prefix=None)  # type: ignore[arg-type]  # that is the point

    @pytest.mark.parametrize(
        ("field", "longest"), [("schema", 56), ("prefix", 31), ("channel", 63)]
    )
    def test_a_name_is_refused_before_postgresql_would_cut_it_off(
        self, field: str, longest: int
    ) -> None:
        Names(**{field: "x" * longest})
        with pytest.raises(ConfigError):
            Names(**{field: "x" * (longest + 1)})

    def test_the_longest_prefix_leaves_room_for_every_name_made_from_it(self) -> None:
        from sa_outbox.database.tables import tables  # noqa: PLC0415 - only here

        described = tables(Names(prefix="x" * 31)).metadata
        made = {
            str(getattr(item, "name", ""))
            for table in described.tables.values()
            for item in (table, *table.indexes, *table.constraints)
        }

        assert made
        assert max(len(name.encode()) for name in made) <= 63

    def test_a_channel_made_of_schema_and_prefix_is_checked_as_a_whole(self) -> None:
        with pytest.raises(ConfigError, match="channel"):
            Names(schema="s" * 63, prefix="p" * 31)
        Names(schema="s" * 63, prefix="p" * 31, channel="c")

    @pytest.mark.parametrize(
        ("names", "channel"),
        [
            (Names(), "outbox"),
            (Names(prefix="events"), "events"),
            (Names(schema="app"), "app_outbox"),
            (Names(schema="app", channel="Loud"), "Loud"),
        ],
    )
    def test_the_channel_follows_from_schema_and_prefix_unless_given(
        self, names: Names, channel: str
    ) -> None:
        assert names.notify_channel == channel

    def test_tables_begin_with_the_prefix(self) -> None:
        names = Names(prefix="events")

        assert names.table() == "events"
        assert names.table("meta") == "events_meta"

    def test_the_options_of_the_command_are_those_that_differ(self) -> None:
        assert Names().options == []
        assert Names(schema="app", prefix="events").options == [
            "--schema",
            "app",
            "--prefix",
            "events",
        ]

    @given(st.text(st.characters()))
    def test_an_accepted_identifier_is_plain_ascii_and_short(self, value: str) -> None:
        try:
            check_identifier("schema", value)
        except ConfigError:
            return
        assert value.isascii()
        assert value.isidentifier()
        assert len(value) <= 63
        assert not value.lower().startswith("pg_")

    @given(st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,62}\Z"))
    def test_every_identifier_of_the_documented_form_is_accepted(self, value: str) -> None:
        if not value.lower().startswith("pg_"):
            check_identifier("schema", value)


class TestLimits:
    @pytest.mark.parametrize(
        "field",
        ["max_payload_bytes", "max_payload_depth", "max_header_bytes", "max_pending_bytes"],
    )
    @pytest.mark.parametrize("value", [0, -1, True, 1.5, "1", None, float("inf")])
    def test_a_limit_is_a_positive_whole_number(self, field: str, value: Any) -> None:
        with pytest.raises(ConfigError, match=field):
            Limits(**{field: value})

    def test_no_limit_is_above_what_postgresql_stores_or_python_reads(self) -> None:
        Limits(max_payload_bytes=250_000_000, max_payload_depth=200)
        with pytest.raises(ConfigError, match="max_payload_bytes"):
            Limits(max_payload_bytes=250_000_001)
        with pytest.raises(ConfigError, match="max_payload_depth"):
            Limits(max_payload_depth=501)


class TestSettings:
    @pytest.mark.parametrize("value", ["", "ON", "yes", True, None, 1])
    def test_notify_is_on_or_off(self, value: Any) -> None:
        with pytest.raises(ConfigError, match="notify"):
            Settings(notify=value)

    @pytest.mark.parametrize("value", [timedelta(0), timedelta(-1), 7, None, "7d"])
    def test_the_lifetime_of_an_idempotency_key_is_a_span_of_time(self, value: Any) -> None:
        with pytest.raises(ConfigError, match="idempotency_key_lifetime"):
            Settings(idempotency_key_lifetime=value)

    @pytest.mark.parametrize("value", [timedelta.max, timedelta(days=365 * 300_000)])
    def test_a_lifetime_no_timestamp_can_hold_is_refused(self, value: timedelta) -> None:
        with pytest.raises(ConfigError, match="idempotency_key_lifetime"):
            Settings(idempotency_key_lifetime=value)

    @pytest.mark.parametrize(
        "options", [{"names": "outbox"}, {"limits": 5}, {"limits": {}}], ids=str
    )
    def test_names_and_limits_are_objects_of_their_class(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            Settings(**options)

    @pytest.mark.parametrize("made", [Names(), Limits(), Settings()], ids=repr)
    def test_nothing_can_be_changed_afterwards(self, made: object) -> None:
        with pytest.raises(AttributeError):
            made.anything = 1  # type: ignore[attr-defined]  # that is the point


class TestEnvironment:
    @pytest.mark.parametrize(
        ("variable", "setting", "notifies"),
        [
            (None, "on", True),
            (None, "off", False),
            ("on", "on", True),
            ("on", "off", False),
            ("off", "on", False),
            ("off", "off", False),
            (" OFF\n", "on", False),
            ("On", "on", True),
        ],
    )
    def test_the_variable_switches_off_and_never_on(
        self, monkeypatch: pytest.MonkeyPatch, variable: str | None, setting: Any, notifies: bool
    ) -> None:
        if variable is None:
            monkeypatch.delenv("SA_OUTBOX_NOTIFY", raising=False)
        else:
            monkeypatch.setenv("SA_OUTBOX_NOTIFY", variable)

        assert Settings(notify=setting).notifies is notifies

    @pytest.mark.parametrize("variable", ["1", "true", "no", "disabled"])
    def test_a_value_that_is_neither_is_refused_and_not_guessed(
        self, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv("SA_OUTBOX_NOTIFY", variable)

        with pytest.raises(ConfigError, match="SA_OUTBOX_NOTIFY"):
            _ = Settings().notifies
