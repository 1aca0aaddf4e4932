"""The sinks of the audit trail: the log and a topic."""

import json
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer
from structlog.testing import capture_logs

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from servicekit.http.audit import AuditEntry
from servicekit.process.auditing import auditing
from streamtable import Ack, Kafka

ENTRY = AuditEntry("alice", "POST", "/clicks", "10.0.0.7", 201)


def test_an_entry_is_logged() -> None:
    with capture_logs() as logged, auditing("shop", "one", Kafka("127.0.0.1:1"), None) as note:
        note(ENTRY)
    assert logged == [
        {
            "event": "audit",
            "log_level": "info",
            "service": "shop",
            "caller": "alice",
            "method": "POST",
            "path": "/clicks",
            "peer": "10.0.0.7",
            "status": 201,
        }
    ]


def test_an_entry_is_logged_only_and_does_not_wait_while_too_many_are_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent:
        def __init__(self, *_: object) -> None:
            self.sent: list[Future[Ack]] = []

        def emit(self, _key: str, _record: object) -> Future[Ack]:
            self.sent.append(Future())
            return self.sent[-1]

        def close(self, _timeout: float) -> None: ...

    silent = Silent()
    monkeypatch.setattr("servicekit.process.auditing.Emitter", lambda *_: silent)
    with capture_logs() as logged, auditing("shop", "one", Kafka("127.0.0.1:1"), "audit") as note:
        for _ in range(5001):
            note(ENTRY)
        assert len(silent.sent) == 5000
        assert [line["event"] for line in logged[-2:]] == ["audit", "an audit record was not sent"]
        silent.sent[0].set_result(Ack("audit", 0, 1))
        note(ENTRY)
        assert len(silent.sent) == 5001


@pytest.mark.broker
def test_entries_go_to_a_topic_too(broker: Broker) -> None:
    topics = Topics(broker.bootstrap_servers)
    topic = topics.create("audit", partitions=1)
    try:
        with auditing("shop", "one", Kafka(broker.bootstrap_servers), topic) as note:
            note(ENTRY)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "test",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        found: Any = wait_until(lambda: consumer.poll(1))
        consumer.close()
    finally:
        topics.delete_all()
    assert found.key() == b"shop"
    record = json.loads(found.value())
    assert record.pop("at") > 1_700_000_000_000
    assert record == {
        "service": "shop",
        "instance": "one",
        "caller": "alice",
        "method": "POST",
        "path": "/clicks",
        "peer": "10.0.0.7",
        "status": 201,
    }
