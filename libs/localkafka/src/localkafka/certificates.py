"""Certificates for brokers and servers on one machine, as in tests: an authority and the certificates that it signs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

HERE = ("127.0.0.1", "localhost")
HOUR = timedelta(hours=1)
_EARLIER = timedelta(minutes=5)  # certificates are valid from then, for clocks that are behind
_SECRET = 0o600


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM; the key is not encrypted."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `<name>.crt` and `<name>.key`, readable only by their owner; existing files are replaced atomically."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        write_secret(key, self.key)
        write_secret(certificate, self.certificate)
        return certificate, key

    def write_together(self, path: Path) -> Path:
        """Write both into one file, as Java expects them."""
        write_secret(path, self.key + self.certificate)
        return path


class Authority:
    """Signs certificates.

    Args:
        name: shown in certificates as their issuer.
        valid: The validity of its own certificate.
    """

    def __init__(self, name: str, valid: timedelta = HOUR) -> None:
        key = generate_private_key(SECP256R1())
        subject = _name(name)
        made = (
            _builder(subject, subject, key, valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, SHA256())
        )
        self._signs_with(key, made)

    @classmethod
    def of(cls, pair: Pair) -> Self:
        """Restore an authority from its certificate and key. Raises `ValueError` if they are not usable."""
        key = load_pem_private_key(pair.key, None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an elliptic curve key")  # noqa: TRY004 - the file is wrong
        self = cls.__new__(cls)
        self._signs_with(key, x509.load_pem_x509_certificate(pair.certificate))
        return self

    def _signs_with(self, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, in PEM, for the trust stores of clients."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def pair(self) -> Pair:
        """The authority's certificate and key; `of` restores the authority from them."""
        return Pair(self.certificate, _pem(self._key))

    def issue(self, name: str, hosts: Sequence[str] = HERE, valid: timedelta = HOUR) -> Pair:
        """Issue a certificate for a server or a client.

        Args:
            name: The subject of the certificate.
            hosts: The names and addresses under which the server is reached.
            valid: The validity from now; a negative value makes an expired certificate.
        """
        key = generate_private_key(SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            _builder(_name(name), self._certificate.subject, key, valid)
            .add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
            .add_extension(issuer, critical=False)
        )
        return Pair(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM), _pem(key))


def expires(certificate: bytes) -> datetime:
    """Return the time when the first certificate of a PEM text expires. Raises `ValueError`."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def hosts_of(certificate: bytes) -> set[str]:
    """Return the names and addresses that the first certificate of a PEM text is for. Raises `ValueError`."""
    extensions = x509.load_pem_x509_certificate(certificate).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def write_secret(path: Path, content: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET), "wb") as file:
        file.write(content)
    beside.replace(path)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - _EARLIER)
        .not_valid_after(now + valid)
    )
