"""Tokens to log in to Kafka with: what their functions may return, and what is said of those that fail."""

import base64
import json
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from streamtable import Kafka, Settings
from streamtable.auth import Token, TokenSource, aws_msk_iam, azure, gcp, named, oidc
from streamtable.errors import AuthenticationFailed, ConfigurationError
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.identity import ClientIdentity

SECRET = "very-secret-token"


def fetched(seconds: float = 60.0) -> Token:
    return Token(SECRET, time.time() + seconds)


def failing() -> Token:
    raise OSError("the metadata server is down")


def text() -> Any:
    return SECRET


def in_milliseconds() -> Token:
    return Token(SECRET, (time.time() + 60) * 1000)


def of_two_lines() -> Token:
    return Token(f"{SECRET}\n{SECRET}", time.time() + 60)


def test_a_token_is_not_in_its_text() -> None:
    assert SECRET not in repr(Token(SECRET, 1.0, extensions={"key": SECRET}))
    assert SECRET not in repr(Kafka("localhost:9092", token=fetched))


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (
            failing,
            AuthenticationFailed,
            r"test_auth\.failing gave no token .*OSError: the metadata server is down",
        ),
        (
            partial(fetched, -5),
            AuthenticationFailed,
            r"test_auth\.fetched returned a token that expired 5 s ago",
        ),
        (text, ConfigurationError, r"test_auth\.text returned str: expected a streamtable\.auth\.Token"),
        (in_milliseconds, ConfigurationError, r"test_auth\.in_milliseconds .*no seconds as expires_at"),
        (of_two_lines, ConfigurationError, r"test_auth\.of_two_lines .*no printable ASCII"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda kafka: kafka.admin(),
        lambda kafka: kafka.producer(),
        lambda kafka: kafka.transactional_producer("t"),
        lambda kafka: kafka.table_reader("r"),
        lambda kafka: kafka.group_consumer("g", "i"),
    ],
    ids=["admin", "producer", "transactional", "reader", "consumer"],
)
def test_every_client_names_the_function_that_gives_no_token_at_once(
    make: Callable[[Kafka], object], function: Any, kind: type[Exception], said: str
) -> None:
    began = time.monotonic()
    with pytest.raises(kind, match=said) as raised:
        make(Kafka("localhost:1", token=function))
    assert SECRET not in str(raised.value)
    assert time.monotonic() - began < 5  # the client itself waits for ten seconds


def test_clients_share_a_token_while_it_is_fresh() -> None:
    calls: list[float] = []

    def function() -> Token:
        calls.append(time.time())
        return fetched(4.0)

    source = TokenSource(function)
    assert source.token() is source.token()
    time.sleep(1.1)
    source.token()
    assert len(calls) == 2


def test_the_last_token_is_used_while_there_is_no_new_one_until_it_expires() -> None:
    answers = [fetched(0.4)]

    def function() -> Token:
        return answers.pop() if answers else failing()

    source = TokenSource(function)
    first = source.token()
    time.sleep(0.15)
    with capture_logs() as lines:
        assert source.token() is first
    assert "the metadata server is down" in lines[0]["reason"]
    time.sleep(0.3)
    with pytest.raises(AuthenticationFailed, match="the metadata server is down"):
        source.token()


def test_a_refused_login_is_reported_with_the_error_of_the_function() -> None:
    source = TokenSource(failing)
    log = ClientLog("test", "localhost:9092", caller=ClientIdentity("localhost:9092", tokens=source))
    refused = KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token")
    assert "test_auth.failing cannot log in: the broker has to accept its issuer" in log.caller.explain(
        refused
    )
    with pytest.raises(AuthenticationFailed):
        source.callback("")
    assert "OSError: the metadata server is down" in log.caller.explain(refused)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security.protocol": "SSL"}, "'security.protocol' is 'SSL', which takes no token="),
        ({"sasl.mechanisms": "PLAIN"}, "'sasl.mechanisms' is 'PLAIN', which takes no token="),
    ],
)
def test_options_that_contradict_a_token_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Kafka("localhost:9092", options, token=fetched)


def test_a_token_is_sent_over_tls_unless_an_option_says_otherwise() -> None:
    secure = Kafka("localhost:9092", token=fetched)
    assert dict(secure.options) == {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    plain = Kafka("localhost:9092", {"security.protocol": "sasl_plaintext"}, token=fetched)
    assert plain.options["security.protocol"] == "sasl_plaintext"
    assert dict(replace(plain, admin_timeout=1.0).options) == dict(plain.options)


def test_a_cluster_with_a_token_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Kafka("localhost:9092", token=fetched))).token().value == SECRET


def test_a_token_itself_is_not_accepted_in_place_of_a_function() -> None:
    with pytest.raises(AuthenticationFailed, match="'Token' object is not callable"):
        Kafka("localhost:9092", token=fetched()).admin()  # type: ignore[arg-type] # what a program without types does


# ---- the setting --------------------------------------------------------------------------------------------------------


def test_the_setting_names_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_login.py").write_text("def fetch():\n    raise OSError('no network')\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = Settings.from_environment({"STREAMTABLE_KAFKA_TOKEN": "shop_login:fetch"})
    assert dict(settings.kafka) == {}
    kafka = Kafka.from_settings(settings)
    with pytest.raises(AuthenticationFailed, match=r"shop_login\.fetch gave no token .*no network"):
        kafka.admin()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("shop_login", "expected MODULE:FUNCTION, aws_msk_iam:REGION, azure:NAMESPACE or gcp"),
        ("aws_msk_iam", "expected MODULE:FUNCTION"),
        ("gcp:x:y:z", "expected MODULE:FUNCTION"),
        ("no_such_module:fetch", "ModuleNotFoundError.*no_such_module"),
        ("json:fetch", "AttributeError.*has no attribute 'fetch'"),
    ],
)
def test_a_setting_that_names_none_is_refused(spec: str, said: str) -> None:
    settings = Settings.from_environment({"STREAMTABLE_KAFKA_TOKEN": spec})
    with pytest.raises(ConfigurationError, match=said):
        Kafka.from_settings(settings)


@pytest.mark.parametrize(
    ("make", "spec", "extra"),
    [
        (partial(aws_msk_iam, "eu-central-1"), "aws_msk_iam:eu-central-1", "aws"),
        (partial(azure, "shop"), "azure:shop", "azure"),
        (gcp, "gcp", "gcp"),
    ],
    ids=["aws", "azure", "gcp"],
)
def test_a_cloud_without_its_library_names_the_extra(
    make: Callable[[], object], spec: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("aws_msk_iam_sasl_signer", "azure.identity", "google.auth.transport.requests"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(ConfigurationError, match=rf"pip install 'streamtable\[{extra}\]'"):
        make()
    with pytest.raises(ConfigurationError, match=rf"pip install 'streamtable\[{extra}\]'"):
        named(spec)


def test_tokens_of_the_clouds_are_made_of_what_their_libraries_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def library(name: str, **members: Any) -> None:
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**members))

    end = time.time() + 600
    google = SimpleNamespace(
        token="ya29",
        service_account_email="a@b.iam",
        expiry=datetime.fromtimestamp(end, UTC).replace(tzinfo=None),
    )
    google.refresh = lambda _request: None
    library("google.auth", default=lambda scopes: (google, "project"))
    library("google.auth.transport.requests", Request=object)
    made = gcp()()
    assert made.expires_at == pytest.approx(end)
    header, claims, token = (base64.urlsafe_b64decode(part + "==") for part in made.value.split("."))
    assert (json.loads(header)["alg"], json.loads(claims)["sub"], token) == (
        "GOOG_OAUTH2_TOKEN",
        "a@b.iam",
        b"ya29",
    )

    asked: list[str] = []

    def get_token(scope: str) -> SimpleNamespace:
        asked.append(scope)
        return SimpleNamespace(token="t", expires_on=9)

    credential = SimpleNamespace(get_token=get_token)
    library("azure.identity", DefaultAzureCredential=lambda: credential)
    assert azure("shop")().expires_at == azure("shop.servicebus.windows.net")().expires_at == 9
    assert asked == ["https://shop.servicebus.windows.net/.default"] * 2

    library(
        "aws_msk_iam_sasl_signer.MSKAuthTokenProvider",
        generate_auth_token=lambda region: (region, 5_000),
        generate_auth_token_from_role_arn=lambda region, role, session: (f"{region} {role} {session}", 6_000),
    )
    for spec, value, ends in (
        ("aws_msk_iam:eu-central-1", "eu-central-1", 5),
        (
            "aws_msk_iam:eu-central-1:arn:aws:iam::1:role/x",
            "eu-central-1 arn:aws:iam::1:role/x streamtable",
            6,
        ),
    ):
        function = named(spec)
        assert function is not None
        assert (function().value, function().expires_at) == (value, ends)


def test_the_options_for_openid_connect_are_those_that_were_given() -> None:
    options = oidc(
        "https://login.example.org/token", "shop", SECRET, extensions={"cluster": "a", "pool": "b"}
    )
    assert options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.oauthbearer.client.id": "shop",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.extensions": "cluster=a,pool=b",
    }
    assert SECRET not in repr(Kafka("localhost:9092", options))
