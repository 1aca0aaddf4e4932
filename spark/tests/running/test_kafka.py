"""The services' settings for Kafka, as both clients of the jobs take them."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import streamtable
from localkafka.certificates import Authority
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.kafka import Kafka, kafka_of
from streamtable_spark.jobs.runs import RunsTopic

SCRAM = {
    "STREAMTABLE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "STREAMTABLE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "STREAMTABLE_KAFKA_SASL_USERNAME": "jobs",
    "STREAMTABLE_KAFKA_SASL_PASSWORD": "a secret",
}
TLS = {"STREAMTABLE_KAFKA_SECURITY_PROTOCOL": "SSL"}


def wrong(environ: dict[str, str], servers: str = "kafka:9092") -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        kafka_of(servers, environ)
    first, *problems = str(caught.value).splitlines()
    assert first == "settings are wrong; nothing was started:"
    return problems


def test_without_settings_clients_get_nothing_but_the_address() -> None:
    kafka = kafka_of("a:1,[::1]:2", {"STREAMTABLE_KAFKA_FETCH_MIN_BYTES": "1", "HOME": "/root"})
    assert kafka.client() == streamtable.Kafka("a:1,[::1]:2")
    assert kafka.spark() == {"kafka.bootstrap.servers": "a:1,[::1]:2"}
    assert Kafka("a:1").client() == kafka_of("a:1", {}).client()


def test_a_password_reaches_both_clients() -> None:
    kafka = kafka_of("kafka:9092", SCRAM)
    assert kafka.client().options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "jobs",
        "sasl.password": "a secret",
    }
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    assert kafka.java() == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} username="jobs" password="a secret";',
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_a_file_may_hold_the_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("of a file\n")
    without_password = {name: value for name, value in SCRAM.items() if not name.endswith("PASSWORD")}
    named = {**without_password, "STREAMTABLE_KAFKA_SASL_PASSWORD_FILE": str(file)}
    assert kafka_of("kafka:9092", named).client().options["sasl.password"] == "of a file"
    file.write_text("two\nlines\n")
    (problem,) = wrong(named)
    assert problem.endswith(f"{file}: expected one line with the secret, without surrounding spaces")
    file.unlink()
    assert wrong(named)[0].endswith(f"{file} cannot be read: No such file or directory")
    assert wrong(without_password) == ["STREAMTABLE_KAFKA_SASL_PASSWORD: is missing: the user's password"]


def test_a_password_stays_within_its_quotes() -> None:
    kafka = kafka_of("kafka:9092", {**SCRAM, "STREAMTABLE_KAFKA_SASL_PASSWORD": '"; evil \\'})
    assert kafka.java()["sasl.jaas.config"].endswith(r'password="\"; evil \\";')


def test_java_gets_certificates_and_keys_as_text(tmp_path: Path) -> None:
    authority = Authority("ours")
    certificate, key = authority.issue("jobs").write(tmp_path, "jobs")
    trusted = tmp_path / "authority.pem"
    trusted.write_bytes(authority.certificate)
    files = {
        "STREAMTABLE_KAFKA_SSL_CA_LOCATION": str(trusted),
        "STREAMTABLE_KAFKA_SSL_CERTIFICATE_LOCATION": str(certificate),
        "STREAMTABLE_KAFKA_SSL_KEY_LOCATION": str(key),
        "STREAMTABLE_KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "none",
    }
    kafka = kafka_of("kafka:9092", {**TLS, **files})
    assert kafka.java() == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted.read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
        "ssl.endpoint.identification.algorithm": "",
    }
    assert kafka.client().options["ssl.key.location"] == str(key)


def test_a_worker_gets_all_of_it_and_no_text_shows_a_secret() -> None:
    kafka = kafka_of("kafka:9092", SCRAM)
    sent = pickle.loads(pickle.dumps(kafka))
    assert (sent.client(), sent.java()) == (kafka.client(), kafka.java())
    assert Kafka(kafka) is kafka
    assert f"{kafka} {kafka!r}" == "kafka:9092 'kafka:9092'"


@pytest.mark.parametrize(
    "servers", ["", "kafka", "kafka:", "kafka:0", "kafka:65536", "a:1,,b:2", "a b:1", "http://a:1"]
)
def test_an_address_that_is_none_is_refused(servers: str) -> None:
    (problem,) = wrong({}, servers)
    assert problem.startswith("STREAMTABLE_BOOTSTRAP_SERVERS")
    assert "expected" in problem


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"SECURITY_PROTOCOL": "TLS"}, "SECURITY_PROTOCOL: 'TLS': PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL are known"),
        ({"SASL_PASSWORD": None}, "SASL_PASSWORD: is missing: the user's password"),
        ({"SASL_USERNAME": ""}, "SASL_USERNAME: expected text without surrounding spaces, and not empty"),
        ({"SASL_MECHANISM": "GSSAPI"}, "SASL_MECHANISM: 'GSSAPI': jobs know PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"SASL_OAUTHBEARER_METHOD": "oidc"}, "SASL_OAUTHBEARER_METHOD: jobs do not know it"),
        ({"SSL_CA_LOCATON": "ca.pem"}, "SSL_CA_LOCATON: jobs do not know it; they know STREAMTABLE_KAFKA_SECURITY_PROTOCOL, "),
        ({"SSL_CA_LOCATION": "/nowhere/ca.pem"}, "SSL_CA_LOCATION: /nowhere/ca.pem cannot be read (No such file"),
        ({"SSL_CA_LOCATION": "/"}, "SSL_CA_LOCATION: / cannot be read (Is a directory)"),
        ({"SSL_CERTIFICATE_LOCATION": "c"}, "SSL_KEY_LOCATION: is missing: a key in PEM"),
        ({"SSL_KEY_PASSWORD": "x"}, "SSL_KEY_LOCATION: is missing: a key in PEM"),
        ({"SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "no"}, "SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: 'no': https or none"),
        ({"ENABLE_SSL_CERTIFICATE_VERIFICATION": "false"}, "ENABLE_SSL_CERTIFICATE_VERIFICATION: jobs do not know it"),
    ],
)  # fmt: skip
def test_each_setting_that_is_wrong_or_missing_is_named(changed: dict[str, str | None], problem: str) -> None:
    named = {f"STREAMTABLE_KAFKA_{name}": value for name, value in changed.items()}
    environ = {name: value for name, value in {**SCRAM, **named}.items() if value is not None}
    found = wrong(environ)
    assert any(each.startswith(f"STREAMTABLE_KAFKA_{problem}") for each in found), found
    assert "a secret" not in "\n".join(found)


def test_what_would_be_ignored_is_refused(tmp_path: Path) -> None:
    login = {name: value for name, value in SCRAM.items() if "SASL_" in name and "PROTOCOL" not in name}
    assert {each.partition(":")[0] for each in wrong(login)} == set(login)
    (problem,) = wrong({**SCRAM, "STREAMTABLE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "STREAMTABLE_KAFKA_SSL_CA_LOCATION": "x"})  # fmt: skip
    assert "is of no use with STREAMTABLE_KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT" in problem


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("SSL_CA_LOCATION", "nothing of use", "does not hold what is needed: certificates in PEM"),
        (
            "SSL_KEY_LOCATION",
            "-----BEGIN RSA PRIVATE KEY-----\n",
            "a key in PEM, of PKCS#8 (`openssl pkcs8 -topk8`",
        ),
        (
            "SSL_KEY_LOCATION",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
            "SSL_KEY_PASSWORD: is missing: what the key is",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / "certificate.pem").write_bytes(Authority("ours").issue("jobs").certificate)
    (tmp_path / "wrong.pem").write_text(text)
    files = {"SSL_CERTIFICATE_LOCATION": "certificate.pem"} if "KEY" in name else {}
    named = {
        f"STREAMTABLE_KAFKA_{each}": str(tmp_path / file)
        for each, file in (files | {name: "wrong.pem"}).items()
    }
    (found,) = wrong({**TLS, **named})
    assert problem in found


@pytest.mark.parametrize("client", [Cluster, lambda kafka: RunsTopic(kafka, "runs")])
def test_settings_that_the_client_refuses_are_wrong_settings(
    client: Callable[[Kafka], object], tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    kafka = kafka_of("kafka:9092", {**TLS, "STREAMTABLE_KAFKA_SSL_CA_LOCATION": str(tmp_path / "ca.pem")})
    with pytest.raises(ConfigurationError, match="the Kafka client refuses its settings"):
        client(kafka)


def test_a_name_that_no_topic_can_have_is_refused_before_kafka_is_asked() -> None:
    with (
        Cluster("127.0.0.1:1") as cluster,
        pytest.raises(ConfigurationError, match="'no keys' cannot be a topic name"),
    ):
        cluster.topics(["no keys"])
