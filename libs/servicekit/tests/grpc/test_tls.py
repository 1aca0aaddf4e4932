from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from localkafka.certificates import Authority
from servicekit.grpc.tls import Renewal, TlsFiles, check_validity, credentials_of, server_credentials
from servicekit.process.edge_settings import EdgeSettings
from streamtable.errors import ConfigurationError


def test_without_files_in_the_settings_there_are_no_credentials() -> None:
    assert credentials_of(None, None) is None


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_files_that_are_not_certificates_are_a_configuration_error(tmp_path: Path, content: bytes) -> None:
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    certificate.write_bytes(content)
    key.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"server\.crt and .*server\.key are no certificate"):
        credentials_of(certificate, key)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"server\.crt"):
        server_credentials(TlsFiles(tmp_path / "server.crt", tmp_path / "server.key"))


def test_an_expired_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    pair = Authority("authority").issue("server", valid=timedelta(minutes=-1))
    with pytest.raises(ConfigurationError, match=r"server\.crt is valid from .*, not now: renew it"):
        credentials_of(*pair.write(tmp_path, "server"))


@pytest.mark.parametrize(("days", "warnings"), [(29, 0), (31, 0), (90, 0)])
def test_a_new_certificate_is_no_reason_for_a_warning(tmp_path: Path, days: int, warnings: int) -> None:
    pair = Authority("authority").issue("server", valid=timedelta(days=days))
    with capture_logs() as logs:
        assert credentials_of(*pair.write(tmp_path, "server")) is not None
    assert len(logs) == warnings


def test_a_certificate_that_expires_within_thirty_days_is_warned_of(tmp_path: Path) -> None:
    certificate, _ = (
        Authority("authority").issue("server", valid=timedelta(days=90)).write(tmp_path, "server")
    )
    with capture_logs() as logs:
        check_validity(certificate, datetime.now(UTC) + timedelta(days=61))
    assert [line["event"] for line in logs] == ["certificate expires soon"]


def test_changed_files_are_reloaded_only_if_they_are_valid(tmp_path: Path) -> None:
    authority = Authority("authority")
    files = TlsFiles(*authority.issue("server").write(tmp_path, "server"))
    renewed = Renewal(files)
    assert renewed() is None
    files.certificate.write_bytes(b"half of it")
    with capture_logs() as logs:
        assert renewed() is None
    assert [line["event"] for line in logs] == ["files not reloaded"]
    authority.issue("server").write(tmp_path, "server")
    assert renewed() is not None
    assert renewed() is None
    files.key.unlink()
    assert renewed() is None


@pytest.mark.parametrize(
    "given",
    [
        {"SERVICEKIT_GRPC_KEY_FILE"},
        {"SERVICEKIT_GRPC_CERTIFICATE_FILE"},
        {"SERVICEKIT_GRPC_CLIENT_AUTHORITIES_FILE"},
    ],
)
def test_tls_files_must_be_set_together(given: set[str]) -> None:
    with pytest.raises(ConfigurationError, match="GRPC_CERTIFICATE_FILE"):
        EdgeSettings.from_environment(dict.fromkeys(given, __file__))
