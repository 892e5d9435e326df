"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the client's side, without a binding to a channel."""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode
from hashlib import pbkdf2_hmac, sha256

MOST_ROUNDS = 1_000_000
"""A server that asks for more wants to keep us busy; PostgreSQL's default is 4096."""


class Scram:
    """*password* is ASCII, which SASLprep leaves as it is. PostgreSQL has the name already."""

    def __init__(self, password: str, name: bytes = b"", nonce: bytes | None = None) -> None:
        self._password = password.encode("ascii")
        self._nonce = b64encode(os.urandom(18)) if nonce is None else nonce
        self._begun = b"n=" + name + b",r=" + self._nonce
        self._expected = b""
        self.is_proved = False
        """The server has shown that it knows the password."""

    def first(self) -> bytes:
        return b"n,," + self._begun

    def answer(self, said: bytes) -> bytes:
        """The proof, for what the server *said* first. Raises ``ValueError`` or ``KeyError``."""
        fields = _fields(said)
        nonce, rounds = fields[b"r"], int(fields[b"i"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("an answer to somebody else")
        if not 0 < rounds <= MOST_ROUNDS:
            raise ValueError(f"{rounds} rounds")
        salted = pbkdf2_hmac("sha256", self._password, _decoded(fields[b"s"]), rounds)
        without_proof = b"c=biws,r=" + nonce
        spoken = b",".join((self._begun, said, without_proof))
        key = _hmac(salted, b"Client Key")
        signature = _hmac(sha256(key).digest(), spoken)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        self._expected = _hmac(_hmac(salted, b"Server Key"), spoken)
        return without_proof + b",p=" + b64encode(proof)

    def check(self, said: bytes) -> None:
        """The server's proof. Raises ``ValueError`` if it has none."""
        given = _decoded(_fields(said).get(b"v", b""))
        if not self._expected or not hmac.compare_digest(given, self._expected):
            raise ValueError("the server does not know the password")
        self.is_proved = True


def _fields(said: bytes) -> dict[bytes, bytes]:
    return {each[:1]: each[2:] for each in said.split(b",") if each[1:2] == b"="}


def _decoded(text: bytes) -> bytes:
    return b64decode(text, validate=True)


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")
