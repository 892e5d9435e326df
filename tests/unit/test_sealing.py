"""Secrets that are stored: sealed, or by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import sealing
from sa_outbox.errors import ConfigError


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = sealing.new_key()
    monkeypatch.setenv(sealing.VARIABLE, made)
    return made


def test_what_is_sealed_can_be_opened() -> None:
    @given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
    def check(secret: str) -> None:
        stored = sealing.seal(secret)
        assert sealing.reveal(stored) == secret
        assert secret not in stored or len(secret) < 8

    check()


def test_the_same_secret_looks_different_each_time() -> None:
    assert sealing.seal("hush") != sealing.seal("hush")


def test_an_old_key_opens_while_a_new_one_seals(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = sealing.seal("hush")
    newer = sealing.new_key()
    monkeypatch.setenv(sealing.VARIABLE, f"{newer}, {key}")
    new = sealing.seal("hush")
    assert sealing.reveal(old) == sealing.reveal(new) == "hush"

    monkeypatch.setenv(sealing.VARIABLE, newer)

    assert sealing.reveal(new) == "hush"
    with pytest.raises(ConfigError, match="none of the keys"):
        sealing.reveal(old)


def test_a_changed_byte_is_noticed() -> None:
    stored = sealing.seal("hush")
    changed = stored[:-5] + ("A" if stored[-5] != "A" else "B") + stored[-4:]
    with pytest.raises(ConfigError, match="none of the keys"):
        sealing.reveal(changed)


@pytest.mark.parametrize("wrong", ["", " , ", "short", "ä" * 44])
def test_a_key_that_is_none_is_told(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sealing.VARIABLE, wrong)
    with pytest.raises(ConfigError, match=sealing.VARIABLE) as told:
        sealing.seal("hush")
    assert "new-key" in str(told.value)
    assert "hush" not in str(told.value)


def test_a_secret_may_stay_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = sealing.named("ACME_SECRET")
    assert stored == "env:ACME_SECRET"
    with pytest.raises(ConfigError, match="ACME_SECRET"):
        sealing.reveal(stored)
    monkeypatch.setenv("ACME_SECRET", "hush")
    assert sealing.reveal(stored) == "hush"


@pytest.mark.parametrize("name", ["", "A B", "A=B", "1A", "ä"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not the name"):
        sealing.named(name)


def test_what_is_neither_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as told:
        sealing.reveal("whsec_plain")
    assert "whsec_plain" not in str(told.value)
    assert sealing.shown("whsec_plain") == "sealed"
