"""All roles as processes, with a real broker between them."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.records import Blocked
from localkafka.broker import Broker
from localkafka.waiting import Deadline, wait_until
from messaging.domain import SPAM_SENT_MIN
from messaging.groups import BLOCKER, BLOCKS, DETECTOR_LOOP, GROUPS, MESSAGES, MESSAGES_FILTERED, TRANSLATIONS
from servicekit_testing import Process
from streamtable import App, Kafka, View

PARTITIONS = 3


class Service:
    """Commands of messaging, and what they do over HTTP."""

    def __init__(self, servers: str, folder: Path, stack: ExitStack) -> None:
        self._environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": servers,
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_LOG_FORMAT": "json",
            "STREAMTABLE_INSTANCE_ID": "test",
            "STREAMTABLE_STATE_DIR": str(folder),
        }
        self._stack = stack
        self._servers, self._folder = servers, folder
        self.http: httpx.Client

    def start(self, *arguments: str) -> Process:
        process = Process("messaging.main", arguments, self._environment)
        self._stack.callback(process.close)
        return process

    def connect(self, process: Process) -> None:
        self.http = self._stack.enter_context(
            httpx.Client(base_url=f"http://{process.address()}", timeout=20)
        )
        wait_until(lambda: self.http.get("/readyz").status_code == 200)

    def blocked(self) -> View[str, Blocked]:
        """The blocker's table."""
        view = App(Kafka(self._servers), self._folder / "test").view(BLOCKER.table)
        self._stack.enter_context(view)
        view.wait_ready(30)
        return view

    def post(self, path: str, **body: Any) -> None:
        response = self.http.post(path, json=body)
        assert response.is_success, response.text

    def write(self, sender: str, recipient: str, text: str) -> None:
        self.post("/messages", sender=sender, recipient=recipient, text=text)

    def feed(self, user: str) -> list[tuple[str, str]]:
        answer = self.http.get(f"/users/{user}/feed").json()
        return [(each["sender"], each["text"]) for each in answer["messages"]]

    def delivered(self, sender: str, recipient: str, text: str) -> bool:
        """Write, and see what became of it as soon as a later message of another user has come."""
        mark = str(time.monotonic_ns())
        self.write(sender, recipient, f"{text} {mark}")
        self.write("the-post", recipient, mark)
        wait_until(lambda: ("the-post", mark) in self.feed(recipient))
        grace = Deadline(0.5)  # they take different ways: the first may be the later one
        while not (
            came := any(each[1].endswith(mark) and each[0] == sender for each in self.feed(recipient))
        ):
            if grace.passed():
                break
            time.sleep(0.02)
        return came


@pytest.fixture
def service(broker: Broker, tmp_path: Path) -> Iterator[Service]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    streams = (MESSAGES, MESSAGES_FILTERED, BLOCKS, TRANSLATIONS, DETECTOR_LOOP)
    names = [stream.name for stream in streams]
    names += [name for group in GROUPS.values() for name in (group.dead_letters, group.retry)]
    topics = [NewTopic(name, PARTITIONS) for name in names]
    topics += [
        NewTopic(name, PARTITIONS, config={"cleanup.policy": "compact"})
        for group in GROUPS.values()
        for name in group.tables
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)
    with ExitStack() as stack:
        yield Service(broker.bootstrap_servers, tmp_path, stack)
    for deleted in admin.delete_topics([topic.topic for topic in topics]).values():
        deleted.result(30)
    wait_until(lambda: MESSAGES.name not in admin.list_topics(timeout=10).topics)
    for removed in admin.delete_consumer_groups(list(GROUPS)).values():
        removed.exception(30)


@pytest.mark.slow("five roles as processes, and messages that go through all of them")
@pytest.mark.timeout(400)
def test_words_are_replaced_blocks_hold_and_a_spammer_is_found_and_blocked(service: Service) -> None:
    processes = service.start("all")
    service.connect(processes)
    blocked = service.blocked()

    service.post("/translations", word="rain", replacement="sun")

    def replaced() -> bool:
        assert service.delivered("bob", "alice", "no rain today")
        return any(text.startswith("no sun today") for _, text in service.feed("alice"))

    wait_until(replaced)

    service.post("/blocks", sender="eve", recipient="alice")
    wait_until(lambda: not service.delivered("eve", "alice", "psst"))
    assert service.delivered("eve", "bob", "psst")

    for number in range(SPAM_SENT_MIN):
        service.write("mallory", f"user-{number}", "buy this")
    wait_until(lambda: blocked.get("mallory") == Blocked(everybody=True, by=[]))
    wait_until(lambda: not service.delivered("mallory", "alice", "buy this"))
    assert not service.delivered("mallory", "bob", "buy this")
    assert service.delivered("bob", "alice", "hello")

    assert service.start("unblock", "mallory").ended() == 0
    wait_until(lambda: service.delivered("mallory", "alice", "sorry"))

    load = service.start("load", "--rate", "0", "--count", "400", "--keys", "10", "--spammers", "2")
    assert load.ended() == 0, load.output
    wait_until(lambda: {user for user, _ in blocked.iterate()} == {"eve", "spammer-1", "spammer-2"})
    wait_until(lambda: len(service.feed("user-1")) > 1)
    assert processes.stop() == 0, processes.output


def test_the_end_of_one_role_ends_all(service: Service) -> None:
    processes = service.start("all")
    service.connect(processes)
    group = processes.process.pid
    child = int(Path(f"/proc/{group}/task/{group}/children").read_text().split()[0])
    wait_until(lambda: handles(child, signal.SIGTERM))
    os.kill(child, signal.SIGTERM)
    assert processes.ended() == 1, "a role has stopped in order, without a request"


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    found = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return bool(int(found[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("command", ["filter", "web", "load"])
def test_a_missing_topic_is_reported_in_words(broker: Broker, tmp_path: Path, command: str) -> None:
    with ExitStack() as stack:
        process = Service(broker.bootstrap_servers, tmp_path, stack).start(command)
        assert process.ended() == 2
        assert "topic" in process.output[-1]
