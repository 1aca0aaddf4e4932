import socket
from pathlib import Path

import pytest

from streamtable.base.settings import REFUSED_KAFKA_OPTIONS, Address, KafkaOptions, Settings
from streamtable.errors import ConfigurationError


def read(**variables: str) -> Settings:
    return Settings.from_environment({f"STREAMTABLE_{name}": value for name, value in variables.items()})


def refusal(**variables: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read(**variables)
    return str(refused.value)


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    settings = Settings.from_environment({"PATH": "/bin"})
    assert settings.bootstrap_servers == "127.0.0.1:9092"
    assert dict(settings.kafka) == {}
    assert settings.instance_id == socket.gethostname()
    assert settings.state_dir == Path.home() / ".local/state/streamtable"
    assert settings.http_address == ("127.0.0.1", 8080)
    assert settings.grpc_address == ("127.0.0.1", 50051)
    assert settings.metrics_address is None
    assert settings.guarantee == "exactly_once"
    assert settings.commit_interval == 0.2
    assert settings.log_format is None
    assert settings.log_level == "info"
    assert settings.static_membership is False
    assert settings.state_retention == 86_400
    assert settings.standby == "none"
    assert settings.group_protocol == "consumer"
    assert settings.start_timeout is None
    assert settings.shutdown_timeout == 30
    assert (settings.stall_timeout, settings.stall_exit) == (30, None)
    assert settings.failpoint is None


def test_a_user_without_a_home_is_told_that_the_default_folder_needs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(_: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert refusal() == (
        "settings are wrong; nothing was started:\nSTREAMTABLE_STATE_DIR (its default): expected a folder to keep tables in; "
        "not a file; ~ has no meaning here, as there is no home folder: set HOME or give a whole path"
    )
    assert read(STATE_DIR="/tmp/tables").state_dir == Path("/tmp/tables")


def test_every_setting_is_read_from_its_variable(tmp_path: Path) -> None:
    settings = read(
        BOOTSTRAP_SERVERS="kafka-1:9092, kafka-2:9092,[::1]:9093",
        INSTANCE_ID="replica-1",
        STATE_DIR=str(tmp_path),
        HTTP_ADDRESS="0.0.0.0:0",
        GRPC_ADDRESS="[::]:50052",
        METRICS_ADDRESS="localhost:9100",
        GUARANTEE="at_least_once",
        COMMIT_INTERVAL="1.5",
        LOG_FORMAT="json",
        LOG_LEVEL="debug",
        STATIC_MEMBERSHIP="true",
        STATE_RETENTION="0",
        STANDBY="all",
        GROUP_PROTOCOL="classic",
        START_TIMEOUT="10",
        SHUTDOWN_TIMEOUT="5",
        FAILPOINT="after-flush",
        KAFKA_QUEUED_MAX_MESSAGES_KBYTES="4096",
        KAFKA_LOG_LEVEL="3",
    )
    assert settings.bootstrap_servers == "kafka-1:9092,kafka-2:9092,[::1]:9093"
    assert settings.instance_id == "replica-1"
    assert settings.state_dir == tmp_path
    assert settings.http_address == ("0.0.0.0", 0)
    assert str(settings.grpc_address) == "[::]:50052"
    assert settings.metrics_address == Address("localhost", 9100)
    assert settings.guarantee == "at_least_once"
    assert settings.commit_interval == 1.5
    assert settings.log_format == "json"
    assert settings.log_level == "debug"
    assert settings.static_membership is True
    assert settings.state_retention == 0
    assert settings.standby == "all"
    assert settings.group_protocol == "classic"
    assert (settings.start_timeout, settings.shutdown_timeout) == (10, 5)
    assert settings.failpoint == "after-flush"
    assert dict(settings.kafka) == {"queued.max.messages.kbytes": "4096", "log_level": "3"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("COMMIT_INTERVAL", text)
            for text in ("nan", "inf", "1_000", "0x10", "1e1", "-1", "+1", "0", "61", ".5")
        ),
        *(("COMMIT_INTERVAL", text) for text in ("٣", "1,5", "0.2s", "9" * 4000)),
        *(("BOOTSTRAP_SERVERS", text) for text in ("kafka", "kafka:", ":9092", "kafka:0", "kafka:65536")),
        *(
            ("BOOTSTRAP_SERVERS", text)
            for text in ("a:1,,b:2", "a:1,A:1", "::1:9092", "[::g]:9092", "999.1.1.1:1")
        ),
        *(
            ("BOOTSTRAP_SERVERS", text)
            for text in ("PLAINTEXT://a:1", "a b:1", "a:1;b:2", "a:9٣", "a:1.5", ",")
        ),
        *(("INSTANCE_ID", text) for text in ("a b", "a/b", "..\u00e9", "x" * 101)),
        *(
            ("HTTP_ADDRESS", text)
            for text in ("8080", "localhost", "localhost:-1", "localhost:70000", "::1:80")
        ),
        ("METRICS_ADDRESS", "none"),
        ("GUARANTEE", "at_most_once"),
        ("GUARANTEE", "EXACTLY_ONCE"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "WARN"),
        *(("STATIC_MEMBERSHIP", text) for text in ("1", "yes", "True", "on")),
        ("GROUP_PROTOCOL", "eager"),
        ("STATE_DIR", "/etc/hostname"),
        ("STATE_RETENTION", "-1"),
        ("STANDBY", "one"),
        ("START_TIMEOUT", "0"),
        *(("LOG_LEVEL", text) for text in ("", " ", "info ", "\tinfo", "in\nfo")),
        ("KAFKA_CLIENT_ID", " "),
    ],
)
def test_a_malformed_value_is_refused_with_its_variable_and_what_is_expected(name: str, value: str) -> None:
    message = refusal(**{name: value})
    assert f"STREAMTABLE_{name}" in message
    assert "expected" in message


def test_all_problems_are_reported_at_once() -> None:
    message = refusal(LOG_LEVEL="loud", COMMIT_INTERVAL="soon", COMIT_INTERVAL="1", KAFKA_ACKS="1")
    assert "STREAMTABLE_LOG_LEVEL='loud': expected debug or info or warning or error" in message
    assert (
        "STREAMTABLE_COMMIT_INTERVAL='soon': expected seconds, a plain decimal number from 0.01 to 60"
        in message
    )
    assert (
        "STREAMTABLE_COMIT_INTERVAL: there is no such setting; did you mean STREAMTABLE_COMMIT_INTERVAL?"
        in message
    )
    assert "STREAMTABLE_KAFKA_ACKS: refused: acknowledged records could be lost" in message


@pytest.mark.parametrize(
    "variable", ["STREAMTABLE_", "STREAMTABLE_KAFKA", "STREAMTABLE_KAFKA_", "streamtable_log_level"]
)
def test_a_name_with_the_prefix_that_is_no_setting_is_refused(variable: str) -> None:
    with pytest.raises(ConfigurationError, match="no such setting"):
        Settings.from_environment({variable: "x"})


@pytest.mark.parametrize("option", sorted(REFUSED_KAFKA_OPTIONS))
def test_a_kafka_option_that_would_break_a_guarantee_is_refused_with_the_reason(option: str) -> None:
    name = "KAFKA_" + option.upper().replace(".", "_")
    assert f"STREAMTABLE_{name}: refused: {REFUSED_KAFKA_OPTIONS[option]}" in refusal(**{name: "1"})
    with pytest.raises(ConfigurationError):
        Settings(kafka=KafkaOptions({option: "1"}))


def test_secrets_show_neither_in_the_settings_text_nor_in_errors() -> None:
    secrets = {
        "KAFKA_SASL_PASSWORD": "hunter2",
        "KAFKA_SSL_KEY_PEM": "hunter2",
        "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET": "hunter2",
        "KAFKA_SASL_USERNAME": "visible",
    }
    settings = read(**secrets)
    assert settings.kafka["sasl.password"] == "hunter2"
    for text in (repr(settings), str(settings), f"{settings.kafka}"):
        assert "hunter2" not in text
        assert "visible" in text
    assert "hunter2" not in refusal(**secrets, KAFKA_ACKS="hunter2", LOG_LEVEL="loud")
    assert "hunter2" not in refusal(KAFKA_SASL_PASSWORD="hunter2 ")


def test_a_secret_may_be_in_a_file_and_only_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    settings = read(KAFKA_SASL_PASSWORD_FILE=str(file))
    assert dict(settings.kafka) == {"sasl.password": "hunter2"}
    assert dict(read(KAFKA_SSL_CA_LOCATION_FILE=str(file)).kafka) == {"ssl.ca.location.file": str(file)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("", "expected one line"),
        ("hunter2\nhunter3", "expected one line"),
        (b"\xff\xfe", "cannot be read: it is no text"),
    ],
)
def test_a_file_without_a_secret_is_named_and_not_shown(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    said = refusal(KAFKA_SASL_PASSWORD_FILE=str(file))
    assert f"STREAMTABLE_KAFKA_SASL_PASSWORD_FILE: {file}" in said
    assert message in said
    assert "hunter" not in said


def test_the_url_of_a_store_is_kept_and_shown_nowhere() -> None:
    settings = read(STORE="redis://me:hunter2@h/0")
    assert settings.store == "redis://me:hunter2@h/0"
    assert "hunter2" not in f"{settings!r} {settings}"
    assert "STREAMTABLE_STORE: expected" in refusal(STORE="redis://me:hunter2@h/0 ")
    assert "hunter2" not in refusal(STORE="redis://me:hunter2@h/0 ", LOG_LEVEL="loud")


def test_settings_cannot_be_changed_after_they_were_checked() -> None:
    settings = read()
    with pytest.raises(AttributeError):
        settings.commit_interval = 5  # type: ignore[misc] # the same
    with pytest.raises(TypeError):
        settings.kafka["acks"] = "1"  # type: ignore[index] # the same


def test_settings_built_in_a_program_are_checked_alike() -> None:
    assert Settings(commit_interval=1).commit_interval == 1
    with pytest.raises(ConfigurationError, match="seconds"):
        Settings(commit_interval=float("nan"))
    with pytest.raises(ConfigurationError, match="seconds"):
        Settings(commit_interval=True)


def test_the_users_state_folder_is_taken_from_the_desktop_standards_variable(tmp_path: Path) -> None:
    settings = Settings.from_environment({"XDG_STATE_HOME": str(tmp_path)})
    assert settings.state_dir == tmp_path / "streamtable"


def test_a_relative_state_folder_is_fixed_to_where_the_process_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(STATE_DIR="state").state_dir == tmp_path / "state"


def test_the_environment_of_the_process_is_read_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMTABLE_COMMIT_INTERVAL", "3")
    assert Settings.from_environment().commit_interval == 3
