"""All roles as processes, with a real broker between them."""

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from contracts.records import Blocked, Message
from localkafka.broker import Broker
from localkafka.topics import delete_topics
from localkafka.waiting import Deadline, wait_until
from messaging.domain import SPAM_SENT_MIN
from messaging.groups import BLOCKER, BLOCKS, GROUPS, MESSAGES, SESSIONS
from servicekit_testing import Process, retrying_client, with_ids
from servicekit_testing.topic_reading import committed_records
from streamtable import App, Kafka, View

if TYPE_CHECKING:
    import httpx

PARTITIONS = 3
OPEN_MS = SESSIONS.closes_at(0, 0)
"""The duration that a session stays open after its last message."""


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
        self.http = self._stack.enter_context(retrying_client(f"http://{process.address()}"))
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
        self.post("/messages", **with_ids({"sender": sender, "recipient": recipient, "text": text}))

    def send(self, messages: Iterable[tuple[str, str, int]]) -> None:
        """Write messages of the past: sender, recipient, and when they were taken."""
        with App(Kafka(self._servers), self._folder / "send").emitter(MESSAGES) as emitter:
            for sender, recipient, at in messages:
                message = Message(id=str(uuid4()), sender=sender, recipient=recipient, text="hello", at=at)
                emitter.emit(sender, message)

    def reports(self) -> list[tuple[str, bool]]:
        """Return the blocks and unblocks by the detector, in order for each user."""
        found = committed_records(self._servers, BLOCKS, patience=60)
        return sorted(((user, block["blocked"]) for user, block in found if block), key=lambda each: each[0])

    def feed(self, user: str) -> list[tuple[str, str]]:
        answer = self.http.get(f"/users/{user}/feed").json()
        return [(each["sender"], each["text"]) for each in answer["messages"]]

    def deliver(self, sender: str, recipient: str, text: str) -> None:
        """Write, and wait until it has come."""
        mark = str(time.monotonic_ns())
        self.write(sender, recipient, f"{text} {mark}")
        wait_until(lambda: any(each[0] == sender and each[1].endswith(mark) for each in self.feed(recipient)))

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
    before = set(admin.list_topics(timeout=30).topics)
    with App(Kafka(broker.bootstrap_servers), tmp_path / "app") as app:
        app.create_topics(*GROUPS.values(), partitions=PARTITIONS)
    with ExitStack() as stack:
        yield Service(broker.bootstrap_servers, tmp_path, stack)
    made = [name for name in admin.list_topics(timeout=30).topics if name not in before]
    delete_topics(admin, made)  # and with them, what the groups have committed


@pytest.mark.slow("five roles as processes, and messages that go through all of them")
@pytest.mark.timeout(400)
def test_words_are_replaced_blocks_hold_and_a_spammer_is_found_and_blocked(service: Service) -> None:
    processes = service.start("all")
    service.connect(processes)
    blocked = service.blocked()

    service.post("/translations", word="rain", replacement="sun")

    def replaced() -> bool:
        service.deliver("bob", "alice", "no rain today")
        return any(text.startswith("no sun today") for _, text in service.feed("alice"))

    wait_until(replaced)

    service.post("/blocks", sender="eve", recipient="alice")
    wait_until(lambda: not service.delivered("eve", "alice", "psst"))
    service.deliver("eve", "bob", "psst")

    for number in range(SPAM_SENT_MIN):
        service.write("mallory", f"user-{number}", "buy this")
    wait_until(lambda: blocked.get("mallory") == Blocked(everybody=True, by=[]))
    wait_until(lambda: not service.delivered("mallory", "alice", "buy this"))
    assert not service.delivered("mallory", "bob", "buy this")
    service.deliver("bob", "alice", "hello")

    assert service.start("unblock", "mallory").ended() == 0
    wait_until(lambda: service.delivered("mallory", "alice", "sorry"))

    load = service.start("load", "--rate", "0", "--count", "400", "--keys", "10", "--spammers", "2")
    assert load.ended() == 0, load.output
    wait_until(lambda: {user for user, _ in blocked.iterate()} == {"eve", "spammer-1", "spammer-2"})
    wait_until(lambda: len(service.feed("user-1")) > 1)
    assert processes.stop() == 0, processes.output


def test_a_spammer_is_blocked_until_their_session_has_closed_though_the_detector_is_killed_meanwhile(
    service: Service,
) -> None:
    noon = time.time_ns() // 1_000_000 - 4 * OPEN_MS

    def from_everywhere(at: int) -> Iterator[tuple[str, str, int]]:
        """Messages of this time in each partition of the topic."""
        return ((f"other-{number}", "carol", at) for number in range(3 * PARTITIONS))

    def spam(sender: str, number: int, at: int) -> Iterator[tuple[str, str, int]]:
        return ((sender, f"user-{each}", at) for each in range(number))

    detector = service.start("detector")
    service.send([*spam("mallory", SPAM_SENT_MIN, noon), *spam("trudy", SPAM_SENT_MIN - 1, noon)])
    wait_until(lambda: service.reports() == [("mallory", True)])
    detector.process.kill()
    detector.ended()
    service.send(spam("trudy", 1, noon + 1))
    detector = service.start("detector")
    wait_until(lambda: service.reports() == [("mallory", True), ("trudy", True)])

    closed = noon + 1 + OPEN_MS
    service.send(from_everywhere(closed))
    over = [("mallory", True), ("mallory", False), ("trudy", True), ("trudy", False)]
    wait_until(lambda: service.reports() == over)
    detector.process.kill()
    detector.ended()
    service.send(spam("mallory", SPAM_SENT_MIN, noon))  # late: that session has closed
    service.send([*spam("mallory", 1, closed), *spam("trudy", SPAM_SENT_MIN, closed)])
    service.send(from_everywhere(closed + OPEN_MS))
    detector = service.start("detector")
    wait_until(lambda: service.reports() == [*over, ("trudy", True), ("trudy", False)])
    assert detector.stop() == 0, detector.output


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
