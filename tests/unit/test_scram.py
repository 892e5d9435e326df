"""SCRAM-SHA-256: the example of RFC 7677, and servers that do not know the password."""

from __future__ import annotations

import pytest

from sa_outbox.cli.scram import MOST_ROUNDS, Scram

NONCE = b"rOprNGfwEbeRWgbNEkqO"
THEIRS = NONCE + b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b"W22ZaJ0SNY7soEsUEjb6gQ=="
FIRST = b"r=" + THEIRS + b",s=" + SALT + b",i=4096"
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def scram() -> Scram:
    return Scram("pencil", b"user", NONCE)


def test_it_says_what_the_example_says(scram: Scram) -> None:
    assert scram.first() == b"n,,n=user,r=" + NONCE
    assert scram.answer(FIRST) == (
        b"c=biws,r=" + THEIRS + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not scram.is_proved
    scram.check(PROOF)
    assert scram.is_proved


def test_a_nonce_is_used_once() -> None:
    assert Scram("pencil").first() != Scram("pencil").first()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"r=" + NONCE + b",s=" + SALT + b",i=4096",
        b"r=somebody-else,s=" + SALT + b",i=4096",
        b"r=" + THEIRS + b",s=" + SALT + b",i=0",
        b"r=" + THEIRS + b",s=" + SALT + b",i=-1",
        b"r=" + THEIRS + b",s=" + SALT + b",i=%d" % (MOST_ROUNDS + 1),
        b"r=" + THEIRS + b",s=" + SALT + b",i=many",
        b"r=" + THEIRS + b",s=!,i=4096",
        b"r=" + THEIRS + b",i=4096",
    ],
)
def test_a_server_that_says_something_else_gets_no_proof(scram: Scram, said: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        scram.answer(said)


@pytest.mark.parametrize("said", [b"", b"v=", b"e=other-error", PROOF.replace(b"6rri", b"6rrj")])
def test_a_server_that_does_not_know_the_password_is_found_out(scram: Scram, said: bytes) -> None:
    scram.answer(FIRST)

    with pytest.raises(ValueError, match="does not know"):
        scram.check(said)
    assert not scram.is_proved


def test_a_proof_before_there_was_a_question_proves_nothing(scram: Scram) -> None:
    with pytest.raises(ValueError, match="does not know"):
        scram.check(b"v=")
