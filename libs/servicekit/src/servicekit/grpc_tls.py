"""TLS for a gRPC server, from files."""

import ssl
from pathlib import Path

import grpc

from servicekit.settings import EdgeSettings
from streamtable.errors import ConfigurationError


def server_credentials(
    certificate: Path, key: Path, client_authorities: Path | None = None
) -> grpc.ServerCredentials:
    """Credentials for `GrpcServer`. The files are read once: a renewed certificate needs a new process.

    Args:
        certificate: the server's, in PEM, followed by those that lead to its authority.
        key: its private key, in PEM.
        client_authorities: in PEM; if given, only callers with a certificate of one of them are served.

    Raises:
        ConfigurationError: a file cannot be used; names it, never its content.
    """
    # gRPC itself notices what is wrong only when the first caller comes.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigurationError(
            f"{certificate} and {key} are no certificate and its unencrypted key in PEM"
        ) from error
    roots = None
    if client_authorities is not None:
        try:
            context.load_verify_locations(client_authorities)
        except OSError as error:
            raise ConfigurationError(f"{client_authorities} has no certificates in PEM") from error
        roots = client_authorities.read_bytes()
    pair = (key.read_bytes(), certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], root_certificates=roots, require_client_auth=roots is not None)


def credentials_of(settings: EdgeSettings) -> grpc.ServerCredentials | None:
    """As the settings say; None: without TLS. Raises `ConfigurationError`."""
    certificate, key = settings.grpc_certificate_file, settings.grpc_key_file
    if certificate is None or key is None:
        return None
    return server_credentials(certificate, key, settings.grpc_client_authorities_file)


def _no_password() -> str:
    """For OpenSSL, which would ask at the terminal."""
    return ""
