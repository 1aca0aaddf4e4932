"""The overlay that gives the stack's Kafka TLS, SASL/SCRAM and ACLs: checked as text, and run where there is a Docker engine."""

import json
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.stack.programs import load
from tests.stack.stack import (
    PORTS,
    ROOT,
    UP_SECONDS,
    Stack,
    docker,
    free_ports,
    load_yaml,
    logs_of,
    wait_until,
)

from localkafka.certificates import Authority, Pair, hosts_of

BASE: dict[str, Any] = load_yaml((ROOT / "docker-compose.yml").read_text())["services"]
TEXT = (ROOT / "infra/secure/compose.yml").read_text()
LAID = load_yaml(TEXT)
OVER: dict[str, Any] = LAID["services"]
SHOWN = ("/api/fleet", "/api/history", "/api/topics/streamtable-status/records")
USERS: dict[str, Any] = load_yaml((ROOT / "infra/topics.yaml").read_text())["users"]
SERVICES = sorted(OVER.keys() - {"kafka", "topics", "users"})
# They have a way of their own to Kafka, which the page on security names.
WITHOUT = ("chaos", "click-count-processor-chaos", "kafka-ui")


def secrets_of(service: dict[str, Any]) -> dict[str, str]:
    """Return the secrets of a service: source by target."""
    plain = [{"source": each} if isinstance(each, str) else each for each in service["secrets"]]
    return {each.get("target", each["source"]): each["source"] for each in plain}


def test_every_service_that_talks_to_kafka_is_covered() -> None:
    talking = {
        name
        for name, service in BASE.items()
        if "STREAMTABLE_BOOTSTRAP_SERVERS" in service.get("environment", {}) and not name.startswith(WITHOUT)
    }
    assert talking == {*SERVICES, "topics"}
    assert USERS.keys() >= set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_comes_as_its_own_user_with_its_own_password_and_asks_its_callers(name: str) -> None:
    service = OVER[name]
    environment = service["environment"]
    assert environment["STREAMTABLE_KAFKA_SASL_USERNAME"] == name
    assert environment["STREAMTABLE_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    lent = secrets_of(service)
    assert lent["password"] == f"{name}.password"
    assert {source for source in lent.values() if source.endswith((".password", ".key"))} <= {
        f"{name}.password",
        f"{name}.key",
    }
    if not name.startswith("spark-"):  # which serve no calls
        assert service["env_file"] == [f"${{STACK_SECRETS:-./build/secure}}/{name}.env"]
    assert service["depends_on"]["users"] == {"condition": "service_completed_successfully"}


def test_a_service_with_a_grpc_server_shows_a_certificate_of_its_own() -> None:
    serving = {name for name in SERVICES if "STREAMTABLE_GRPC_ADDRESS" in BASE[name]["environment"]}
    assert serving >= {"click-count-view", "click-count-processor", "click-count-windows"}
    for name in serving:
        assert secrets_of(OVER[name])["grpc.crt"] == f"{name}.crt"
        assert OVER[name]["environment"]["SERVICEKIT_GRPC_KEY_FILE"] == "/run/secrets/grpc.key"


def test_no_listener_of_kafka_is_in_plain_text_and_what_no_acl_allows_is_denied() -> None:
    kafka = OVER["kafka"]["environment"]
    kinds = dict(each.split(":") for each in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert {each.partition(":")[0] for each in kafka["KAFKA_LISTENERS"].split(",")} == kinds.keys()
    assert set(kinds.values()) == {"SSL", "SASL_SSL"}
    for name, kind in kinds.items():
        if kind == "SSL":
            assert kafka[f"KAFKA_LISTENER_NAME_{name}_SSL_CLIENT_AUTH"] == "required"
    assert kafka["KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND"] == "false"


def test_no_secret_stands_in_the_file_and_each_that_is_lent_is_declared() -> None:
    lent = {source for service in OVER.values() for source in secrets_of(service).values()}
    assert lent == LAID["secrets"].keys()
    for name, each in LAID["secrets"].items():
        assert each == {"file": f"${{STACK_SECRETS:-./build/secure}}/{name}"}
    assert "authority.key" not in TEXT


def make(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "infra.secure.keys", *arguments],
        cwd=ROOT,
        env={**os.environ, "STACK_SECRETS": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_what_is_lent_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    said = make(folder)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert (
        LAID["secrets"].keys()
        | {f"{user}.{part}" for user in USERS for part in ("api-key", "env")}
        | {"authority.key"}
        <= first.keys()
    )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "authority.key").stat().st_mode) == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / "broker.pem")
    for name, content in first.items():
        assert name.endswith((".crt", ".env")) or content.decode() not in said
    assert "none, all are good" in make(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first

    make(folder, "--renew")
    changed = {path.name for path in folder.iterdir() if path.read_bytes() != first[path.name]}
    assert {"broker.pem", "admin.crt", "click-count-view.crt"} <= changed
    assert not [
        name
        for name in changed
        if name.startswith("authority") or name.endswith((".api-key", ".env", ".password"))
    ]


def test_a_service_accepts_a_key_of_its_own_with_the_scopes_that_it_serves(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    make(folder)

    def digest(name: str) -> str:
        return sha256((folder / name).read_bytes()).hexdigest()

    asked = f",click-count-instances:click-count/read:{digest('click-count-instances.query-key')}"
    answering = ("click-count-processor", "click-count-windows")
    for user in USERS:
        scopes = "read+console+replay" if user == "console" else "read+write"
        own = f"SERVICEKIT_API_KEYS=operator:{scopes}:{digest(f'{user}.api-key')}"
        given = (folder / f"{user}.env").read_text().splitlines()
        assert given[0] == own + (asked if user in answering else "")
        key = (folder / "click-count-instances.query-key").read_text()
        assert given[1:] == ([f"CLICK_COUNT_QUERY_KEY={key}"] if user == "click-count-instances" else [])
    keys = [path.read_text() for end in ("api-key", "query-key") for path in folder.glob(f"*.{end}")]
    assert len(set(keys)) == len(keys) == len(USERS) + 1


def test_a_certificate_that_lacks_a_name_is_issued_again(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    make(folder)
    name = "click-count-processor"
    there = (folder / f"{name}.crt").read_bytes()
    assert hosts_of(there) == {name, "click-count", "localhost", "127.0.0.1"}
    authority = Authority.of(
        Pair((folder / "authority.crt").read_bytes(), (folder / "authority.key").read_bytes())
    )
    authority.issue(name, [name], timedelta(days=80)).write(folder, name)
    assert f"certificates issued: {name}\n" in make(folder)
    assert hosts_of((folder / f"{name}.crt").read_bytes()) == hosts_of(there)


# ---- brought up --------------------------------------------------------------------------------------------------------


class SecureStack(Stack):
    """The default profile with the second file laid over it, and secrets of its own."""

    @property
    def environment(self) -> dict[str, str]:
        files = f"{ROOT / 'docker-compose.yml'}:{ROOT / 'infra/secure/compose.yml'}"
        return {**super().environment, "COMPOSE_FILE": files}

    @property
    def folder(self) -> Path:
        return Path(self.ports["STACK_SECRETS"])

    def key(self, service: str) -> dict[str, str]:
        """Return the header with the key of a service's callers."""
        return {"Authorization": f"Bearer {(self.folder / f'{service}.api-key').read_text()}"}


@pytest.fixture(scope="module")
def secure(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStack]:
    folder = tmp_path_factory.mktemp("secure")
    make(folder)
    shown_texts = {**free_ports(PORTS), "STACK_SECRETS": str(folder)}
    made = SecureStack(f"streamtable-secure-{os.getpid()}", shown_texts)
    try:
        made.compose("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS))
        yield made
    finally:
        made.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "40")


def secrets_in(folder: Path) -> dict[str, str]:
    """Return the texts that must not appear anywhere: passwords, API keys, and a line of each private key."""
    kept = {
        path.name: path.read_text()
        for part in ("password", "api-key", "query-key")
        for path in folder.glob(f"*.{part}")
    }
    return kept | {path.name: path.read_text().splitlines()[1] for path in folder.glob("*-view.key")}


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_with_authentication_a_click_is_counted_for_callers_with_the_key_and_no_secret_is_shown(
    secure: SecureStack,
) -> None:
    click = {"user_id": "alice", "url": "https://example.org/"}
    with httpx.Client(timeout=20) as stranger:
        assert (
            stranger.post(f"{secure.url('STACK_CLICK_EMITTER_PORT')}/clicks", json=click).status_code == 401
        )
    with httpx.Client(timeout=20) as client:
        emitted = f"{secure.url('STACK_CLICK_EMITTER_PORT')}/clicks"
        sent = client.post(emitted, json=click, headers=secure.key("click-count-emitter"))
        assert sent.status_code == 201, sent.text
        query, key = f"{secure.url('STACK_CLICK_QUERY_PORT')}/clicks/alice", secure.key("click-count-query")
        wait_until("the click is counted", lambda: client.get(query, headers=key).json().get("count") == 1)
        assert client.post(emitted, json=click, headers=key).status_code == 401  # the key of another service

        console, key = secure.url("STACK_CONSOLE_PORT"), secure.key("console")
        shown = [client.get(f"{console}{path}", headers=key).raise_for_status().text for path in SHOWN]
    containers = secure.inspect_all()
    logs = [logs_of(each["Id"]) for each in containers]
    assert len(logs) == len([name for name in OVER if not name.startswith("spark-")])
    assert all(logs)
    shown_texts = [*shown, *logs, *(json.dumps(each["Config"]) for each in containers)]
    for name, secret in secrets_in(secure.folder).items():
        assert not [text for text in shown_texts if secret in text], name


@pytest.mark.stack
@pytest.mark.timeout(300)
def test_callers_without_the_key_get_an_answer_that_says_why(secure: SecureStack) -> None:
    wrong = "the credential is not valid or no longer so"
    for port, path in (
        ("STACK_CLICK_QUERY_PORT", "/clicks/alice"),
        ("STACK_STATUS_QUERY_PORT", "/users/alice"),
        ("STACK_REACH_QUERY_PORT", "/reach?url=foo.com"),
        ("STACK_CONSOLE_PORT", "/api/fleet"),
    ):
        for key, shown_texts in (
            ("", "send a credential: Authorization: Bearer"),
            ("of-somebody-else", wrong),
        ):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            answer = httpx.get(f"{secure.url(port)}{path}", headers=headers, timeout=20)
            assert answer.status_code == 401, path
            assert answer.json()["detail"].startswith(shown_texts), path


def refused(secure: SecureStack, service: str, *command: str, **settings: str) -> str:
    """Return the output of a service that fails with changed settings."""
    shown_texts = [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
    done = secure.tried("run", "--rm", "--no-deps", *shown_texts, service, *command, seconds=120)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.stack
@pytest.mark.timeout(300)
def test_a_service_without_acls_reports_which_one_the_broker_of_the_stack_requires(
    secure: SecureStack,
) -> None:
    said = refused(secure, "click-count-emitter", "view", CLICK_COUNT_GROUP="of-others")
    lacks = "lacks the right DESCRIBE (READ and WRITE bring it) on topic 'of-others-table'"
    assert f"user 'click-count-emitter' {lacks}" in said


@pytest.mark.stack
@pytest.mark.timeout(300)
def test_a_service_with_the_password_of_another_reports_that_authentication_failed(
    secure: SecureStack,
) -> None:
    user = {"STREAMTABLE_KAFKA_SASL_USERNAME": "click-count-query"}
    said = refused(secure, "click-count-view", "view", "--fail-fast", **user)
    assert "user 'click-count-query' cannot log in" in said


def configure_broker(secure: SecureStack, *change: str) -> None:
    """Alter the running broker as the page on security says, at the listener of the administrator."""
    (kafka,) = secure.containers("kafka")
    options = [f"ssl.{store}.type=PEM" for store in ("keystore", "truststore")]
    options += ["security.protocol=SSL", "ssl.keystore.location=/run/secrets/broker.pem"]
    file = secure.folder / "client.properties"
    file.write_text("\n".join([*options, "ssl.truststore.location=/run/secrets/authority.crt"]))
    lend(secure, file)
    tool = ["/opt/kafka/bin/kafka-configs.sh", "--bootstrap-server", "kafka:9095"]
    tool += ["--command-config", "/tmp/client.properties", "--entity-type", "brokers", "--entity-name", "1"]
    docker("exec", kafka, *tool, "--alter", *change)


def lend(secure: SecureStack, file: Path) -> None:
    """Copy a file into the container of the broker."""
    (kafka,) = secure.containers("kafka")
    file.chmod(0o644)
    docker("cp", str(file), f"{kafka}:/tmp/{file.name}")


@pytest.mark.stack
@pytest.mark.timeout(300)
def test_a_service_reports_that_the_broker_s_certificate_has_expired(secure: SecureStack) -> None:
    pair = Pair(*((secure.folder / f"authority.{part}").read_bytes() for part in ("crt", "key")))
    hosts = load("infra/secure/keys.py").CERTIFICATES["broker"]
    expired = Authority.of(pair).issue("broker", hosts, -timedelta(hours=1))
    lend(secure, expired.write_together(secure.folder / "expired.pem"))
    setting = "listener.name.inside.ssl.keystore.location"
    configure_broker(secure, "--add-config", f"{setting}=/tmp/expired.pem")
    try:
        said = refused(secure, "click-count-view", "view", "--fail-fast")
    finally:
        configure_broker(secure, "--delete-config", setting)
    assert "the certificate of kafka:9092 has expired: give the broker a new one" in said


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_a_broker_that_is_restarted_shows_its_renewed_certificate_and_clicks_are_counted_on(
    secure: SecureStack,
) -> None:
    address = ("127.0.0.1", int(secure.ports["STACK_KAFKA_PORT"]))
    before = ssl.get_server_certificate(address)
    make(secure.folder, "--renew")
    secure.compose("restart", "kafka")
    secure.compose("up", "--detach", "--wait", "--no-recreate", "--no-deps", "kafka")
    assert ssl.get_server_certificate(address) != before
    click = {"user_id": "bob", "url": "https://example.org/"}
    writes, reads = (
        httpx.Client(timeout=60, headers=secure.key(f"click-count-{role}")) for role in ("emitter", "query")
    )
    with writes, reads:
        emitted = f"{secure.url('STACK_CLICK_EMITTER_PORT')}/clicks"
        wait_until("a click is taken", lambda: writes.post(emitted, json=click).raise_for_status().is_success)
        query = f"{secure.url('STACK_CLICK_QUERY_PORT')}/clicks/bob"
        wait_until("it is counted", lambda: reads.get(query).raise_for_status().json()["count"] >= 1)
