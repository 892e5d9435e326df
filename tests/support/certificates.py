"""Certificates for servers in tests: good ones, and those that nobody should trust."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.now(UTC)


class Authority:
    """Signs certificates; its own is the only one that ``trust()`` trusts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority")
        made = _builder(self._name, self._name, self._key.public_key(), days=10)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(_usage(signs=True), critical=True)
        made = made.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self._own = made.sign(self._key, hashes.SHA256())
        self._path = folder / "authority.pem"
        self._path.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._path))

    def server(self, host: str, *, days: int = 5, self_signed: bool = False) -> ssl.SSLContext:
        """What a server for *host* uses; *days* below zero have expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(host)
        made = _builder(name, name if self_signed else self._name, key.public_key(), days=days)
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        made = made.add_extension(names, critical=False)
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        signed = made.sign(key if self_signed else self._key, hashes.SHA256())
        path = self._folder / f"{host}{days}{self_signed}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - timedelta(days=30))
        .not_valid_after(_NOW + timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
