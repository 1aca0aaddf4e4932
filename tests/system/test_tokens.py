"""Clients of all kinds that log in by tokens of some seconds, on a real broker: busy, idle, and while there are none."""

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.system.bench import until

from localkafka.broker import Broker, Listener
from localkafka.fixtures import BRISK, PATIENT
from localkafka.process import reserve_port
from streamtable import App, Context, Group, Input, Kafka, Long, Persist, Stream, String
from streamtable.auth import Token, oidc
from streamtable.base.ports import TopicDescription
from streamtable.errors import AuthenticationFailed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A listener that takes unsecured tokens, and closes connections whose token has expired."""
    with tempfile.TemporaryDirectory(prefix="streamtable-tokens-") as folder, ExitStack() as stack:
        held = stack.enter_context(reserve_port(0))
        port = held.getsockname()[1]
        of_listener = "listener.name.tokens"
        overrides = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            f"{of_listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{of_listener}.oauthbearer.sasl.jaas.config": f'{_MODULE} unsecuredLoginStringClaim_sub="broker";',
            f"{of_listener}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            f"{of_listener}.oauthbearer.connections.max.reauth.ms": "3600000",
        }
        broker = Broker(
            Path(folder),
            overrides=BRISK | PATIENT | overrides,
            brief=True,
            listeners=[Listener("TOKENS", port, port)],
        )
        stack.callback(broker.close)
        stack.callback(broker.kill)
        broker.start()
        yield f"127.0.0.1:{port}"


class Issuer:
    """Issues tokens of some seconds, as long as it works."""

    def __init__(self) -> None:
        self.life = 10.0
        self.works = True
        self.issued = 0

    def __call__(self) -> Token:
        if not self.works:
            raise OSError("the issuer is down")
        self.issued += 1
        now = time.time()
        claims = {"sub": "alice", "iat": now, "exp": now + self.life}
        parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
        encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
        return Token(".".join([*encoded, ""]), now + self.life, "alice")


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def kafka(address: str, issuer: Issuer) -> Kafka:
    return Kafka(address, {"security.protocol": "SASL_PLAINTEXT"}, admin_timeout=20, token=issuer)


def count(ctx: Context[str, int], _: str) -> None:
    ctx.set((ctx.value or 0) + 1)


def world(prefix: str) -> tuple[Stream[str, str], Group[str, int]]:
    stream = Stream(f"{prefix}-in", String(), String())
    return stream, Group(f"{prefix}-g", Input(stream, count), Persist(Long()))


@pytest.mark.parametrize("seconds", [12.0, pytest.param(60.0, marks=pytest.mark.faults_long)])
def test_all_clients_work_on_after_their_first_tokens_have_expired_while_they_were_idle(
    kafka: Kafka, issuer: Issuer, tmp_path: Path, logged: list[MutableMapping[str, Any]], seconds: float
) -> None:
    stream, group = world(f"t{uuid4().hex[:8]}")
    with App(kafka, tmp_path) as app, ExitStack() as stack:
        app.create_topics(group, partitions=1)
        admin = kafka.admin()
        stack.callback(admin.close)
        emitter = stack.enter_context(app.emitter(stream))
        ack = emitter.emit_now("alice", "1")
        idle_since = time.monotonic()
        processor = app.processor(group, instance_id="i", commit_interval=0.05)
        thread = threading.Thread(target=processor.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(processor.stop)
        view = app.view(group.table)
        view.wait_ready(60)
        view.wait_for(ack, 30)
        tail = stack.enter_context(app.tail(stream))
        until(lambda: tail.ready, "the tail is ready")
        time.sleep(max(0.0, seconds - (time.monotonic() - idle_since)))
        with tail.follow("alice") as following:
            view.wait_for(emitter.emit_now("alice", "2"), 30)
            until(lambda: following.read_to, "the tail has read it")
        assert view.get("alice") == 2
        assert admin.topics([stream.name])[stream.name].partitions == 1
    assert issuer.issued > 1
    assert not [line for line in logged if "gave no token" in str(line)]


def test_a_wrong_token_and_a_failing_issuer_are_named_and_the_next_token_gets_in(
    kafka: Kafka, issuer: Issuer, logged: list[MutableMapping[str, Any]]
) -> None:
    issuer.works = False
    with pytest.raises(AuthenticationFailed, match=r"test_tokens\.Issuer gave no token .*the issuer is down"):
        kafka.admin()
    issuer.works = True
    admin = kafka.admin()
    admin.create_topics([TopicDescription(f"t{uuid4().hex[:8]}", 1, 1, {})])
    admin.close()

    stranger = Kafka(
        kafka.bootstrap_servers,
        kafka.options,
        admin_timeout=1.5,
        token=lambda: Token("not-a-token", time.time() + 60),
    )
    with pytest.raises(
        AuthenticationFailed, match="cannot log in: the broker has to accept its issuer"
    ) as raised:
        stranger.admin().topic_partitions()
    assert "not-a-token" not in str(raised.value) + str(logged)


ISSUER = """
from tests.system.test_tokens import Issuer
issue = Issuer()
"""


def test_the_command_line_logs_in_by_the_function_of_the_setting(kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "shop_login.py").write_text(ISSUER)
    ours = [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, ours)),
        "STREAMTABLE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAMTABLE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "STREAMTABLE_KAFKA_TOKEN": "shop_login:issue",
    }
    command = [sys.executable, "-m", "streamtable_cli", "--timeout", "20", "topics", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "topic"), done.stderr


@pytest.mark.faults_long
def test_a_client_says_why_its_token_was_not_renewed(
    kafka: Kafka, issuer: Issuer, logged: list[MutableMapping[str, Any]]
) -> None:
    issuer.life = 3.0
    with ExitStack() as stack:
        producer = kafka.producer()
        stack.callback(producer.close, 1.0)
        issuer.works = False
        until(
            lambda: "OSError: the issuer is down" in str([line for line in logged if "text" in line]),
            "it is logged",
            40,
        )
        time.sleep(issuer.life)  # the last token is used that long
        with pytest.raises(AuthenticationFailed, match="the issuer is down"):
            kafka.admin()


@pytest.fixture
def endpoint(issuer: Issuer) -> Iterator[tuple[str, list[str]]]:
    """The URL of a token endpoint, and the requests that it has answered."""
    asked: list[str] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            token = {"access_token": issuer().value, "token_type": "Bearer", "expires_in": issuer.life}
            answer = json.dumps(token).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            pass

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", asked
        server.shutdown()
        thread.join()


def test_an_issuer_of_openid_connect_is_asked_by_the_client_itself(
    address: str, endpoint: tuple[str, list[str]]
) -> None:
    url, asked = endpoint
    options = oidc(url, "shop", "secret", scope="kafka")
    kafka = Kafka(address, {**options, "security.protocol": "SASL_PLAINTEXT"}, admin_timeout=20)
    topic = f"oidc-{uuid4().hex[:8]}"
    with App(kafka, "unused") as app:
        cluster = kafka.cluster()
        cluster.create_topics([TopicDescription(topic, 1, 1, {})])
        cluster.close()
        with app.emitter(Stream(topic, String(), Long())) as emitter:
            emitter.emit_now("a", 1)
    assert all("scope=kafka" in each and "grant_type=client_credentials" in each for each in asked)
    assert len(asked) >= 2
