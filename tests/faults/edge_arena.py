"""Clicks through the emitter service under attack: the responses, compared with the topic and the table."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import httpx
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.arena import BROKER_SETTINGS, ROOT

from click_count import topics
from localkafka.broker import Broker
from localkafka.process import reserve_port
from localkafka.topics import create_topics
from localkafka.waiting import Deadline
from localstores.proxy import Delay, Drop, Proxy, TruncatedResponse
from servicekit_testing import Process
from streamtable import App, Kafka
from streamtable.errors import NotReady, RetryLater

PARTITIONS: Final = 4
USERS: Final = 20
CLIENTS: Final = 4
REQUESTS: Final = 3  # of each client in a round
CLICKS: Final = 8  # in a request
ATTEMPTS_MAX: Final = 200
DELIVERY_SECONDS: Final = 1.0
FROZEN_SECONDS: Final = 8.0
SETTLED_SECONDS: Final = 90.0
GROUP: Final = "click-count"
ATTACKS: Final = ("freeze", "kill", "lost answers", "late answers", "lost requests", "lost http answers")


@dataclass
class Ledger:
    """The outcomes of each id in all responses to the clients. Any thread.

    Attributes:
        sent: Ids of all clicks that were ever in a request.
        accepted: Ids that a response reported as stored.
        unknown: Ids that a response reported as unknown but not as `not_sent`, or whose response was lost.
        not_sent: The number of responses that reported a click as not sent.
        answers: The number of answers by status; 0: no answer arrived.
        wrong: The contradictions between responses and their requests.
    """

    sent: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    not_sent: int = 0
    answers: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, ids: list[str], response: httpx.Response | None) -> list[str]:
        """Record a response. Returns the ids to send again."""
        with self.lock:
            self.sent.update(ids)
            status = 0 if response is None else response.status_code
            self.answers[status] = self.answers.get(status, 0) + 1
            if response is None:
                self.unknown.update(ids)
                return ids
            document = response.json()
            if "accepted" not in document:  # an invalid request or an overloaded server: nothing was sent
                if "took too long" in document.get("detail", ""):
                    self.wrong.append(f"{status} without lists: {document}")
                return ids
            accepted = [each["id"] for each in document["accepted"]]
            unknown, not_sent = document.get("unknown", []), document.get("not_sent", [])
            if sorted([*accepted, *unknown]) != sorted(ids) or not set(not_sent) <= set(unknown):
                self.wrong.append(f"{status} does not name all ids once: {document}")
            self.accepted.update(accepted)
            self.unknown.update(set(unknown) - set(not_sent))
            self.not_sent += len(not_sent)
            return list(unknown)


class EdgeArena:
    """A broker behind a proxy, the emitter and the processor of click counting, and clients behind a proxy.

    Args:
        folder: The folder of the broker and the processor.
        seed: The seed of all random choices.
        plant: The fault of `faulty_edge` that emitter and processor have; None: none.
        settled_seconds: The time limit until the count is right.
        patience: The share of requests whose client retries until all clicks are accepted.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        plant: str | None = None,
        settled_seconds: float = SETTLED_SECONDS,
        patience: float = 0.7,
    ) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self._folder = folder
        self._plant = plant
        self._settled_seconds = settled_seconds
        self._patience = patience
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        held = reserve_port(0)
        self._stack.callback(held.close)
        port = held.getsockname()[1]
        self.kafka_proxy = self._stack.enter_context(Proxy(port))
        # The broker advertises the proxy's address to all clients.
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.kafka_proxy.port}"}
        overrides = {**BROKER_SETTINGS, **advertised}
        self.broker = Broker(self._folder / "broker", port=port, overrides=overrides, brief=True)
        self._stack.callback(self.broker.close)
        self._stack.callback(self.broker.kill)
        self.broker.start()
        self.servers = f"127.0.0.1:{self.kafka_proxy.port}"
        compacted = {"cleanup.policy": "compact"}
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        made = [
            NewTopic(name, PARTITIONS) for name in ("user-clicks", f"{GROUP}-dead-letters", f"{GROUP}-retry")
        ]
        made += [NewTopic(f"{GROUP}-{table}", PARTITIONS, config=compacted) for table in ("table", "ids")]
        create_topics(admin, made)
        # A small queue, so that it is full while the broker is down: further clicks are reported as not sent.
        emitter = self._start(
            "emitter",
            SERVICEKIT_DELIVERY_TIMEOUT=str(DELIVERY_SECONDS),
            STREAMTABLE_KAFKA_QUEUE_BUFFERING_MAX_MESSAGES=str(CLICKS * CLIENTS // 2),
        )
        self.processor = self._start("processor", STREAMTABLE_STATE_DIR=str(self._folder / "state"))
        service_port = int(emitter.address().rpartition(":")[2])
        self.http_proxy = self._stack.enter_context(Proxy(service_port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self, command: str, **settings: str) -> Process:
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": self.servers,
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_INSTANCE_ID": command,
            **settings,
        }
        module = "click_count.main"
        if self._plant is not None:
            module = "tests.faults.faulty_edge"
            environment |= {"EDGE_PLANT": self._plant, "PYTHONPATH": str(ROOT)}
        process = Process(module, [command], environment)
        self._stack.callback(process.close)
        return process

    # ---- one round -------------------------------------------------------------------------------------------------

    def round(self, attack: str) -> None:
        """Let all clients send during the attack, and wait until each click is accepted or given up."""
        clients = [
            threading.Thread(target=self._client, args=(Random(self.random.random()),))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        time.sleep(self.random.uniform(0.0, 0.3))  # a random moment of attack, not a wait for a condition
        self._attack(attack)
        self.kafka_proxy.faults.clear()
        self.http_proxy.faults.clear()
        for client in clients:
            client.join()

    def _attack(self, attack: str) -> None:
        random, faults = self.random, self.random.randint(5, 30)
        match attack:
            case "freeze":
                self.broker.pause()
                time.sleep(random.choice([0.5, 1.5, 3.0, FROZEN_SECONDS]))
                self.broker.resume()
            case "long freeze":
                self.broker.pause()
                time.sleep(FROZEN_SECONDS)
                self.broker.resume()
            case "kill":
                self.broker.kill()
                self.broker.start()
            case "lost answers":
                self._disturb(
                    self.kafka_proxy, [TruncatedResponse(random.choice([0, 0, 3])) for _ in range(faults)]
                )
            case "late answers":
                self._disturb(self.kafka_proxy, [Delay(random.uniform(0.2, 3.0)) for _ in range(faults)])
            case "lost requests":
                self._disturb(self.kafka_proxy, [Drop() for _ in range(faults)])
            case "lost http answers":
                self._disturb(
                    self.http_proxy, [random.choice([TruncatedResponse(0), Drop()]) for _ in range(faults)]
                )
            case other:
                raise ValueError(other)

    @staticmethod
    def _disturb(proxy: Proxy, faults: list[Any]) -> None:
        proxy.next(*faults)
        time.sleep(2.0)  # the duration of the fault

    def _client(self, random: Random) -> None:
        """Send clicks as in `docs/how-to/send-with-retries.md`; some clients give up after the first response."""
        url = f"http://127.0.0.1:{self.http_proxy.port}"
        with httpx.Client(base_url=url, timeout=20) as http:
            for _ in range(REQUESTS):
                clicks = {each["id"]: each for each in _clicks(random)}
                patient = random.random() < self._patience
                for _ in range(ATTEMPTS_MAX if patient else 1):
                    try:
                        response = http.post("/clicks", json=list(clicks.values()))
                    except httpx.TransportError:
                        response = None
                    again = self.ledger.note(list(clicks), response)
                    clicks = {each: clicks[each] for each in again}
                    if not clicks:
                        break
                    time.sleep(0.2)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def in_topic(self) -> list[str]:
        """Return the ids of all clicks in the topic, with repetitions."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "-", "enable.auto.commit": False})
        try:
            places = [TopicPartition("user-clicks", n, 0) for n in range(PARTITIONS)]
            ends = [consumer.get_watermark_offsets(place, timeout=60)[1] for place in places]
            consumer.assign(places)
            found: list[str] = []
            while len(found) < sum(ends):
                message = consumer.poll(60)
                assert message is not None, "the topic could not be read"
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                found.append(topics.USER_CLICKS.value.decode(value)["id"])
            return found
        finally:
            consumer.close()

    def counted(self, expected: int) -> int:
        """Return the sum of all rows when it is `expected`, or after the time limit."""
        table = topics.by_count(GROUP).table
        end = Deadline(self._settled_seconds)
        with App(Kafka(self.servers), self._folder / "view").view(table) as view:
            view.wait_ready(SETTLED_SECONDS)
            while True:
                try:
                    total = sum(count for _, count in view.iterate())
                except (NotReady, RetryLater):
                    total = -1
                if total == expected or end.passed():
                    return total
                time.sleep(0.2)


def _clicks(random: Random) -> Iterator[dict[str, Any]]:
    for _ in range(CLICKS):
        identity = str(UUID(int=random.getrandbits(128), version=4))
        user = f"user-{random.randrange(USERS)}"
        yield {"id": identity, "user_id": user, "url": "https://example.org/", "at": 1_700_000_000_000}
