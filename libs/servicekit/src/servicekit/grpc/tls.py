"""TLS for a gRPC server, from files that may be renewed while it runs."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import grpc
import structlog
from cryptography.x509 import load_pem_x509_certificate

from servicekit.auth.reloading import ReloadedFiles
from streamtable.errors import ConfigurationError

log = structlog.get_logger()
EXPIRES_SOON: Final = timedelta(days=30)
"""A warning is logged this long before a certificate expires, unless it is issued for a shorter time anyway."""


@dataclass(frozen=True)
class TlsFiles:
    """The certificate and key of a server, and the authority it trusts; each in PEM.

    Attributes:
        certificate: The server's certificate, followed by its chain of intermediate certificates.
        key: The unencrypted private key.
        client_authorities: If given, only callers with a certificate of one of these authorities are served.
    """

    certificate: Path
    key: Path
    client_authorities: Path | None = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Return the content of the files. Raises `ConfigurationError`, which names a bad file but never its content."""
        # gRPC itself reports an error only at the first connection.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigurationError(
                f"{self.certificate} and {self.key} are no certificate and its unencrypted key in PEM"
            ) from error
        check_validity(self.certificate, datetime.now(UTC))
        roots = None
        if self.client_authorities is not None:
            try:
                context.load_verify_locations(self.client_authorities)
            except OSError as error:
                raise ConfigurationError(f"{self.client_authorities} has no certificates in PEM") from error
            roots = self.client_authorities.read_bytes()
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [path for path in (self.certificate, self.key, self.client_authorities) if path]


class Renewal:
    """Reads the files again when they have changed; gRPC asks at each new connection."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = ReloadedFiles("certificates", files.paths, lambda: _valid(files))

    @property
    def current(self) -> grpc.ServerCertificateConfiguration:
        """The content of the files."""
        return self._files.content

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """Return new credentials; None if nothing has changed or the files are bad: the old ones stay in use."""
        return self._files.content if self._files.look() else None


def _valid(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    try:
        return files.read()
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return credentials for `GrpcServer`. Renewed files are used from the next connection on.

    Raises:
        ConfigurationError: A file cannot be used.
    """
    files.read()  # raises an error that names the settings
    renewal = Renewal(files)
    return grpc.dynamic_ssl_server_credentials(
        renewal.current,
        renewal,  # type: ignore[arg-type] # None for "as before" is part of gRPC's contract, and not of its types
        require_client_authentication=files.client_authorities is not None,
    )


def credentials_of(
    certificate: Path | None, key: Path | None, client_authorities: Path | None = None
) -> grpc.ServerCredentials | None:
    """Return credentials from settings; None means a server without TLS. Raises `ConfigurationError`."""
    if certificate is None or key is None:
        return None
    return server_credentials(TlsFiles(certificate, key, client_authorities))


def check_validity(certificate: Path, now: datetime) -> None:
    """Warn of a certificate that expires soon. Raises `ConfigurationError` for one that is not valid now."""
    found = load_pem_x509_certificate(certificate.read_bytes())
    begin, end = found.not_valid_before_utc, found.not_valid_after_utc
    if not begin <= now <= end:
        raise ConfigurationError(
            f"{certificate} is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, not now: renew it"
        )
    if end - now < EXPIRES_SOON and end - begin > EXPIRES_SOON:
        log.warning("certificate expires soon", path=str(certificate), expires=f"{end:%Y-%m-%d %H:%M} UTC")


def _no_password() -> str:
    """Return no password, where OpenSSL would ask for one at the terminal."""
    return ""
