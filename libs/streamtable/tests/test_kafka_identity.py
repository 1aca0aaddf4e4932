"""Errors of authentication and authorization say what to do."""

import logging
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from localkafka.certificates import Authority, Pair
from localkafka.waiting import Deadline
from streamtable import Emitter, Stream, String
from streamtable.errors import AuthenticationFailed, RetryLater
from streamtable.kafka import Kafka
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.errors import forbidden, forbidden_in
from streamtable.kafka.identity import ClientIdentity, ConnectionErrors, distrust

OURS, STRANGER = Authority("ours"), Authority("stranger")
DAY = timedelta(days=1)


@contextmanager
def server(pair: Pair | None, folder: Path) -> Iterator[int]:
    """Shows its certificate to all who come, and hangs up; without one it speaks no TLS. Gives its port."""
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair.write(folder, "server"))

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):  # the socket was closed: the test is over
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    if context is None:
                        connection.sendall(b"hello\n")
                    else:
                        context.wrap_socket(connection, server_side=True).close()

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        thread = Thread(target=serve, args=(listening,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(listening.shutdown, socket.SHUT_RDWR)
        yield listening.getsockname()[1]


@pytest.fixture
def trusted(tmp_path: Path) -> str:
    file = tmp_path / "authority.crt"
    file.write_bytes(OURS.certificate)
    return str(file)


CASES = [
    (OURS.issue("server", valid=-DAY), r"has expired: give the broker a new one"),
    (
        OURS.issue("server", ["kafka.example"]),
        r"is for other names: connect to one of these, or give the broker one for 127\.0\.0\.1",
    ),
    (STRANGER.issue("server"), r"is of an authority that is not in .*authority\.crt: name the file"),
    (None, r"does not speak TLS: correct the port, or STREAMTABLE_KAFKA_SECURITY_PROTOCOL"),
]
IDS = ["expired", "of another name", "of another authority", "none"]


@pytest.mark.parametrize(("pair", "expected"), CASES, ids=IDS)
def test_a_client_says_what_is_wrong_with_the_certificate_and_what_to_do(
    pair: Pair | None, expected: str, tmp_path: Path, trusted: str
) -> None:
    options = {"security.protocol": "SSL", "ssl.ca.location": trusted}
    with server(pair, tmp_path) as port:
        admin = Kafka(f"127.0.0.1:{port}", options, admin_timeout=1).admin()
        said, deadline = "", Deadline(30)
        while not re.search(rf"127\.0\.0\.1:{port} .*{expected}", said):
            assert not deadline.passed(), said
            with pytest.raises(RetryLater) as raised:
                admin.brokers()
            said = str(raised.value)
        assert isinstance(raised.value, AuthenticationFailed)
        admin.close()


def test_a_certificate_that_is_accepted_or_that_no_server_shows_is_not_reported(
    tmp_path: Path, trusted: str
) -> None:
    with server(OURS.issue("server"), tmp_path) as port:
        assert distrust("127.0.0.1", port, trusted) == ""
        assert distrust("localhost", port, str(tmp_path / "gone.crt")).startswith(str(tmp_path / "gone.crt"))
    assert distrust("127.0.0.1", port, trusted) == ""


def test_a_wrong_password_is_logged_with_the_user_and_where_to_correct_it() -> None:
    with capture_logs() as logs:
        log = ClientLog("test", "localhost:9092", caller=ClientIdentity("localhost:9092", "alice"))
        log.error(KafkaError(KafkaError._AUTHENTICATION, "Authentication failed"))
        log.error(KafkaError(KafkaError._TRANSPORT, "gone"))
    assert [line["text"].partition(" (")[0] for line in logs] == [
        (
            "user 'alice' cannot log in: correct STREAMTABLE_KAFKA_SASL_USERNAME, _PASSWORD and _MECHANISM, or give the "
            "user this password, by 'streamtable users apply'"
        ),
        "_TRANSPORT: gone",
    ]


def test_the_latest_refusal_is_reported_once_and_lost_connections_are_none() -> None:
    connection_errors = ConnectionErrors()
    assert connection_errors.taken() is None
    for code in (KafkaError._SSL, KafkaError._AUTHENTICATION, KafkaError._TRANSPORT):
        connection_errors.heard(KafkaError(code))
    taken = connection_errors.taken()
    assert taken is not None
    assert taken.code() == KafkaError._AUTHENTICATION
    assert connection_errors.taken() is None


@pytest.mark.parametrize(
    ("code", "operation", "expected"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "READ", "user 'alice' lacks the right READ on topic 'in'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "WRITE", "user 'alice' lacks the right READ on group 'g'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "DELETE", "user 'alice' lacks the right DELETE on group 'g'"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "WRITE",
            "user 'alice' lacks the right WRITE on transactional id 'tx'",
        ),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            "ALTER",
            "user 'alice' lacks the right ALTER on cluster 'kafka-cluster'",
        ),
    ],
)
def test_a_refusal_names_user_right_and_thing(code: int, operation: str, expected: str) -> None:
    caller = ClientIdentity("localhost:9092", "alice", group="g", transactional_id="tx")
    error = caller.lacks(KafkaError(code), operation, "in")
    assert str(error).startswith(expected)
    assert "'streamtable users apply'" in str(error)
    assert error.topic == ("in" if error.resource == "topic" else None)


def test_a_refusal_is_found_in_the_words_of_a_client_that_failed_for_good() -> None:
    words = "Failed to add partition to transaction: Broker: Topic authorization failed"
    for error in (
        KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, words),
        KafkaError(KafkaError._FATAL, words),
    ):
        found = forbidden(error)
        assert found is not None
        assert (found.code(), found.str()) == (KafkaError.TOPIC_AUTHORIZATION_FAILED, words)
    assert forbidden(KafkaError(KafkaError._FATAL, "Broker: Producer fenced")) is None
    assert forbidden(KafkaError(KafkaError._TRANSPORT, words)) is None
    log = ClientLog("test", "localhost:9092")
    with capture_logs():
        log.log(logging.ERROR, "%s", "TXNERR", "client-1", words)
    assert forbidden_in(log.transaction_failed) is not None


def test_an_error_names_a_user_without_a_name_as_such() -> None:
    error = ClientIdentity("localhost:9092").lacks(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "READ")
    assert str(error).startswith("this process, which names no user, lacks the right READ on topic: grant it")


NOWHERE = r"the host name 'no-such-host\.invalid' does not resolve on this machine: correct STREAMTABLE_BOOTSTRAP_SERVERS"


def test_a_host_name_that_does_not_resolve_is_named_by_who_asks_and_by_who_sends() -> None:
    kafka = Kafka("no-such-host.invalid:9092", admin_timeout=2)
    cluster = kafka.cluster()
    try:
        with pytest.raises(RetryLater, match=NOWHERE):
            cluster.topics(["any"])
    finally:
        cluster.close()
    stream: Stream[str, str] = Stream("any", String(), String())
    with Emitter(stream, kafka, delivery_timeout=2) as emitter, pytest.raises(RetryLater, match=NOWHERE):
        emitter.emit_now("alice", "x")
