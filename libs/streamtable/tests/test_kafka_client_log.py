"""The messages of the Kafka client are logged, at a limited rate."""

import logging

from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from streamtable.kafka.client_log import ClientLog


def test_the_same_kind_of_error_is_logged_every_ten_seconds_with_the_number_left_out() -> None:
    now = 0.0
    with capture_logs() as logs:
        log = ClientLog("test", "localhost:9092", lambda: now)
        for now in (0.0, 1.0, 9.0, 10.0):  # noqa: B007 - the clock reads it
            log.error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        log.log(logging.INFO, "%s [%s] %s", "FAIL", "client-1", "another kind")
    assert [(entry["kind"], entry["suppressed"]) for entry in logs] == [
        ("_ALL_BROKERS_DOWN", 0),
        ("_ALL_BROKERS_DOWN", 2),
        ("FAIL", 0),
    ]
    assert logs[0]["bootstrap_servers"] == "localhost:9092"


def test_a_setting_of_another_kind_of_client_is_no_warning() -> None:
    with capture_logs() as logs:
        ClientLog("test", "localhost:9092").log(
            logging.WARNING, "%s [%s] %s", "CONFWARN", "client-1", "ignored"
        )
    assert [entry["log_level"] for entry in logs] == ["debug"]


def test_what_the_client_tries_again_by_itself_is_no_warning() -> None:
    with capture_logs() as logs:
        log = ClientLog("test", "localhost:9092")
        log.log(logging.WARNING, "%s", "GETPID", "client-1", "Coordinator load in progress: retrying")
    assert [entry["log_level"] for entry in logs] == ["info"]
