"""Secrets that are stored: sealed, or by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.errors import ConfigError
from sa_outbox.operations import sealing
from sa_outbox.operations.sealing import Binding

HERE = Binding("acme", "https://acme.example/hooks", "secret")
BEARER = Binding("acme", "https://acme.example/hooks", "bearer")
NAME = "SA_OUTBOX_WEBHOOK_ACME"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = sealing.new_key()
    monkeypatch.setenv(sealing.VARIABLE, made)
    return made


def test_what_is_sealed_can_be_opened() -> None:
    @given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
    def check(secret: str) -> None:
        stored = sealing.seal(secret, HERE)
        assert sealing.reveal(stored, HERE) == secret
        sealed = stored.rsplit(":", 1)[-1]  # before it: the form and the key's name, no secrets
        assert secret not in sealed or len(secret) < 8

    check()


def test_the_same_secret_looks_different_each_time() -> None:
    assert sealing.seal("hush", HERE) != sealing.seal("hush", HERE)


def test_an_old_key_opens_while_a_new_one_seals(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = sealing.seal("hush", HERE)
    newer = sealing.new_key()
    monkeypatch.setenv(sealing.VARIABLE, f"{newer}, {key}")
    new = sealing.seal("hush", HERE)
    assert sealing.reveal(old, HERE) == sealing.reveal(new, HERE) == "hush"

    monkeypatch.setenv(sealing.VARIABLE, newer)

    assert sealing.reveal(new, HERE) == "hush"
    with pytest.raises(ConfigError, match="none of the keys"):
        sealing.reveal(old, HERE)


def test_a_changed_byte_is_noticed() -> None:
    stored = sealing.seal("hush", HERE)
    changed = stored[:-5] + ("A" if stored[-5] != "A" else "B") + stored[-4:]
    with pytest.raises(ConfigError, match="it was changed"):
        sealing.reveal(changed, HERE)


@pytest.mark.parametrize("wrong", ["", " , ", "short", "ä" * 44])
def test_a_key_that_is_none_is_told(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sealing.VARIABLE, wrong)
    with pytest.raises(ConfigError, match=sealing.VARIABLE) as told:
        sealing.seal("hush", HERE)
    assert "new-key" in str(told.value)
    assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    "there",
    [
        Binding("bolt", HERE.url, "secret"),
        Binding("acme", "https://evil.example/hooks", "secret"),
        Binding("acme", "https://acme.example/hooks/", "secret"),
        Binding("acme", HERE.url, "previous secret"),
        BEARER,
        Binding('acme", "secret', HERE.url, "secret"),
    ],
)
def test_what_is_sealed_for_one_place_opens_in_no_other(there: Binding) -> None:
    stored = sealing.seal("hush", HERE)
    with pytest.raises(ConfigError, match="sealed for another endpoint, field or URL") as told:
        sealing.reveal(stored, there)
    assert "hush" not in str(told.value)
    assert "add it again" in str(told.value)

    moved = sealing.moved(stored, HERE, there)

    assert sealing.reveal(moved, there) == "hush"


def test_no_two_places_look_alike() -> None:
    @given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
    def check(one: tuple[str, str], other: tuple[str, str]) -> None:
        bound = [Binding(*each, "secret").associated for each in (one, other)]
        assert (bound[0] == bound[1]) is (one == other)

    check()


def test_which_key_has_sealed_it_can_be_seen(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = sealing.seal("hush", HERE)
    assert sealing.is_current(stored)
    assert sealing.is_current(sealing.named(NAME))
    monkeypatch.setenv(sealing.VARIABLE, f"{sealing.new_key()},{key}")
    assert not sealing.is_current(stored)
    assert sealing.is_current(sealing.moved(stored, HERE, HERE))


@pytest.mark.parametrize(
    "stored", ["sealed:1:", "sealed:1:{}", "sealed:1:{}:", "sealed:1:{}:AAAA", "sealed:1:{}:ä!"]
)
def test_what_looks_sealed_and_is_not_is_refused(stored: str) -> None:
    name = sealing.seal("hush", HERE).split(":")[2]
    with pytest.raises(ConfigError):
        sealing.reveal(stored.format(name), HERE)


def test_a_secret_may_stay_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = sealing.named(NAME)
    assert stored == f"env:{NAME}"
    with pytest.raises(ConfigError, match=NAME):
        sealing.reveal(stored, HERE)
    monkeypatch.setenv(NAME, "hush\n")
    assert sealing.reveal(stored, HERE) == "hush"


def test_of_the_environment_only_what_is_allowed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    stored = "env:AWS_SECRET_ACCESS_KEY"
    with pytest.raises(ConfigError, match="secrets_from_env") as told:
        sealing.reveal(stored, HERE)
    assert "hush" not in str(told.value)
    assert sealing.reveal(stored, HERE, ("AWS_SECRET_*",)) == "hush"
    assert sealing.reveal(stored, HERE, ("X", "AWS_SECRET_ACCESS_KEY")) == "hush"
    with pytest.raises(ConfigError):
        sealing.reveal(stored, HERE, ("AWS_SECRET", "aws_secret_*", "AWS_SECRET_ACCESS_KEY_2"))


def test_a_token_is_never_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "hush")
    with pytest.raises(ConfigError, match="must be sealed"):
        sealing.reveal(sealing.named(NAME), BEARER)


@pytest.mark.parametrize(
    "patterns",
    ["SA_OUTBOX_*", ["*"], ["A*"], ["ABC*"], ["A*B"], [""], ["A B"], [7], ["SA_OUTBOX_*"]],
)
def test_a_list_that_allows_too_much_is_refused(patterns: list[str]) -> None:
    with pytest.raises(ConfigError, match="secrets_from_env"):
        sealing.check_readable(patterns)


def test_the_list_that_there_is_by_itself_is_good() -> None:
    assert sealing.check_readable(sealing.READABLE) == sealing.READABLE


@pytest.mark.parametrize("name", ["", "A B", "A=B", "1A", "ä"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not the name"):
        sealing.named(name)


def test_what_is_neither_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as told:
        sealing.reveal("whsec_plain", HERE)
    assert "whsec_plain" not in str(told.value)
    assert sealing.shown("whsec_plain") == "sealed"
