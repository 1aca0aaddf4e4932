"""Counts without a copy of the table: the commands and variables of the compose files, as processes on this machine.

Without containers all have one host name. So each process has a port of its own, and a path in place of each secret of a container;
users, rights, passwords, keys and certificates are as in the stack.
"""

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import pytest
from confluent_kafka.admin import AdminClient
from tests.stack.stack import ROOT, rendered
from tests.system.secure_world import World, secure_world

from click_count.load import clicks
from click_count.topics import USER_CLICKS, by_count
from localkafka.broker import Broker
from localkafka.process import reserve_port
from localkafka.topics import delete_topics
from localkafka.waiting import wait_until
from servicekit.process.load import LoadOptions
from servicekit_testing import Process
from streamtable import App, Emitter, Kafka
from streamtable.errors import ConfigurationError, NotReady
from streamtable_query import Query

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
BASE: Final = rendered((ROOT / "docker-compose.yml").read_text())
OVER: Final = rendered((ROOT / "infra/secure/compose.yml").read_text())
PROCESSOR, ASKING = "click-count-processor", "click-count-instances"
CLICKS: Final = LoadOptions(rate=0, keys=20, count=200, seed=5)
PARTITIONS: Final = 2


@dataclass
class Stack:
    """The services of the compose file, as processes.

    Attributes:
        kafka: The cluster, for a user who may write clicks.
        broker: The bootstrap servers.
        folder: For the state of the processes.
        opened: Ends the processes.
        secrets: The folder that `make secrets` has filled; None: as without the profile `secure`.
        states: The state folder of each process, in the order of their starts.
    """

    kafka: Kafka
    broker: str
    folder: Path
    opened: ExitStack
    secrets: Path | None = None
    states: list[Path] = field(default_factory=list)

    def start(self, service: str) -> Process:
        """Start a replica of a service, with a port and a state folder of its own."""
        port = self.opened.enter_context(reserve_port()).getsockname()[1]
        state = self.folder / f"{service}-{len(self.states)}"
        self.states.append(state)
        variables = {
            **{name: self._here(text, port) for name, text in self._variables(service).items()},
            "STREAMTABLE_STATE_DIR": str(state),
            "STREAMTABLE_INSTANCE_ID": state.name,  # in a container it is the host name
        }
        process = Process("click_count.main", BASE[service]["command"], variables)
        self.opened.callback(process.close)
        return process

    def client(self, process: Process, service: str) -> httpx.Client:
        key = {} if self.secrets is None else {"X-Api-Key": (self.secrets / f"{service}.api-key").read_text()}
        base = f"http://{process.address()}"
        return self.opened.enter_context(httpx.Client(base_url=base, headers=key, timeout=30))

    def _variables(self, service: str) -> dict[str, str]:
        found: dict[str, Any] = dict(BASE[service]["environment"])
        if self.secrets is not None:
            over = OVER[service]
            lines = (self.secrets / f"{service}.env").read_text().splitlines()
            found |= over["environment"] | dict(line.split("=", 1) for line in lines)
            for each in over["secrets"]:
                source, target = (each, each) if isinstance(each, str) else (each["source"], each["target"])
                for name, text in found.items():
                    if text == f"/run/secrets/{target}":
                        found[name] = str(self.secrets / source)
        return {name: str(value) for name, value in found.items() if value is not None}

    def _here(self, text: str, port: int) -> str:
        """Return a value of the file as it must be on this machine."""
        local = {"kafka:9092": self.broker, "0.0.0.0:8080": "127.0.0.1:0"}
        return local.get(text, text.replace(":50051", f":{port}"))


@contextmanager
def opened(kafka: Kafka, broker: str, folder: Path, secrets: Path | None = None) -> Iterator[Stack]:
    try:
        socket.getaddrinfo(socket.gethostname(), 0)
    except socket.gaierror as error:
        pytest.skip(f"the host name of this machine does not resolve, where processors answer: {error}")
    with ExitStack() as stack:
        yield Stack(kafka, broker, folder, stack, secrets)


@pytest.fixture
def plain(broker: Broker, tmp_path: Path) -> Iterator[Stack]:
    """The topics of clicks on the session's broker; topics and groups are removed at the end."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    before = set(admin.list_topics(timeout=60).topics)
    kafka = Kafka(broker.bootstrap_servers)
    with App(kafka, tmp_path / "app") as app, opened(kafka, broker.bootstrap_servers, tmp_path) as made:
        app.create_topics(by_count(), partitions=PARTITIONS)
        yield made
    left = set(admin.list_topics(timeout=60).topics) - before
    delete_topics(admin, [topic for topic in left if not topic.startswith("__")])
    for removed in admin.delete_consumer_groups([by_count().name]).values():
        removed.exception(30)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with secure_world() as made:
        yield made


@pytest.fixture
def secure(world: World, tmp_path: Path) -> Iterator[Stack]:
    """A Kafka with TLS and ACLs, and what `make secrets` makes, by the authority that has signed the broker's certificate."""
    world.security.authority.pair.write(world.folder, "authority")
    environment = {**os.environ, "STACK_SECRETS": str(world.folder)}
    command = [sys.executable, "-m", "infra.secure.keys"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    emitting = world.kafka("click-count-emitter")
    with opened(emitting, world.broker.bootstrap_servers, tmp_path, world.folder) as made:
        yield made


def emitted(kafka: Kafka) -> Counter[str]:
    """Emit clicks, and return the number of each user's."""
    sent = list(islice(clicks(CLICKS, lambda: time.time_ns() // 1_000_000), CLICKS.count))
    with Emitter(USER_CLICKS, kafka) as emitter:
        for future in [emitter.emit(user, click) for user, click in sent]:
            future.result(60)
    return Counter(user for user, _ in sent)


def count_of(client: httpx.Client, user: str) -> int | None:
    try:
        answer = client.get(f"/clicks/{user}")
    except httpx.TransportError:  # the server may close a connection in the moment in which it is used again
        return None
    return answer.json()["count"] if answer.status_code == 200 else None


def has_answered(processor: Process) -> bool:
    """Whether it has answered a query, by its metrics."""
    found = [line for line in processor.output if line.startswith("listening on http://")]
    metrics = httpx.get(f"{found[0].split()[-1]}/metrics", timeout=30).text if found else ""
    return 'grpc_code="OK",grpc_method="Get"' in metrics


@contextmanager
def counting(stack: Stack) -> Iterator[tuple[httpx.Client, Counter[str]]]:
    """Two processors and a query that asks them, when each of the two has answered and all answers are right."""
    asking, *processors = [stack.start(service) for service in (ASKING, PROCESSOR, PROCESSOR)]
    client = stack.client(asking, ASKING)
    expected = emitted(stack.kafka)

    def right() -> bool:
        counts = (count_of(client, user) == count for user, count in expected.items())
        return all(counts) and all(map(has_answered, processors))

    wait_until(right, 90)
    yield client, expected
    assert [each.stop() for each in (asking, *processors)] == [0, 0, 0]


def test_a_query_without_a_copy_answers_for_the_keys_of_each_processor(plain: Stack) -> None:
    with counting(plain):
        asking, *processors = plain.states
        assert [file for file in asking.rglob("*") if file.is_file()] == []
        assert all(any(file.is_file() for file in state.rglob("*")) for state in processors)


def test_with_certificates_keys_and_least_rights_it_answers_and_no_other_caller_is_answered(
    secure: Stack, world: World
) -> None:
    assert secure.secrets is not None
    group, key = by_count(), (secure.secrets / f"{ASKING}.query-key").read_text()
    credentials = grpc.ssl_channel_credentials(world.security.authority.certificate)
    with counting(secure) as (client, expected):
        user = next(iter(expected))
        assert client.get(f"/clicks/{user}", headers={"X-Api-Key": "wrong"}).status_code == 401
        for name, shown, error, reason in (
            ("click-count", "wrong", ConfigurationError, "UNAUTHENTICATED"),
            ("click-count-view", key, NotReady, "UNAVAILABLE"),  # no process here has its certificate
        ):
            with (
                Query(
                    world.kafka(ASKING),
                    group,
                    group.table,
                    credentials=credentials,
                    server_name=name,
                    metadata={"x-api-key": shown},
                    timeout=5,
                ) as counts,
                pytest.raises(error, match=reason),
            ):
                counts.get(user)
