import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from localkafka.certificates import Authority, expires


def test_a_written_certificate_matches_its_key_which_only_its_owner_may_read(tmp_path: Path) -> None:
    certificate, key = Authority("authority").issue("server").write(tmp_path, "server")
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    together = Authority("authority").issue("server").write_together(tmp_path / "both.pem")
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(together)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_restored_authority_signs_certificates_that_clients_of_the_first_trust() -> None:
    first = Authority("authority")
    again = Authority.of(first.pair)
    assert again.certificate == first.certificate
    assert Authority("authority").certificate != first.certificate


def test_a_certificate_has_the_requested_validity_even_if_it_has_expired() -> None:
    authority = Authority("authority")
    now = datetime.now(UTC)
    left = expires(authority.issue("server", valid=timedelta(days=3)).certificate) - now
    assert timedelta(days=2) < left < timedelta(days=4)
    assert expires(authority.issue("server", valid=timedelta(days=-3)).certificate) < now
