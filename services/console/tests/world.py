"""A fleet for the tests: a processor that works, what others would tell, and consoles as processes of their own."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from contracts.records import JOB_RUN, USER_CLICK, JobRun, ProcessStatus, UserClick
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from servicekit.status.publisher import StatusBoard, publishing, status_stream
from servicekit_testing import Process, retrying_client
from streamtable import (
    App,
    Avro,
    Bytes,
    Context,
    Emitter,
    Group,
    Input,
    Kafka,
    Output,
    Persist,
    Stream,
    String,
)
from streamtable.flow import Windowed, WindowedKey
from streamtable.observe import Metrics

KEY = "a key of the tests"
TOKEN = "a-token-of-the-tests-of-the-console"
STATUS: ProcessStatus = {
    "service": "shop",
    "role": "query",
    "group": "",
    "instance": "one",
    "host": "machine",
    "pid": 7,
    "version": "1.2.3",
    "started_at": 1_000_000,
    "at": 1_010_000,
    "state": "ready",
    "error": "",
    "graph": "",
    "partitions": [],
    "inputs": [],
    "flows": [],
    "copies": [],
    "event_times": [],
    "due": [],
    "emits": [],
    "commits": 0,
    "committed_at": 0,
    "commit_ms": 0.0,
    "dead_letters": 0,
    "aborts": 0,
    "abort_reason": "",
    "calls": [],
    "rebalances": 0,
    "requests": 0,
    "failed_requests": 0,
    "request_rate": 0.0,
    "memory_bytes": 0,
    "store_bytes": 0,
    "omitted": 0,
}


def status_with(**changes: Any) -> ProcessStatus:
    made: Any = {**STATUS, **changes}
    return made  # type: ignore[no-any-return] # the members are the test's


RUN: JobRun = {
    "run": "reconcile-1",
    "job": "reconcile",
    "group": "count",
    "as_group": "",
    "lake": "",
    "host": "machine",
    "version": "1.2.3",
    "started_at": 1_000_000,
    "at": 1_010_000,
    "finished_at": 1_010_000,
    "state": "done",
    "error": "",
    "stage": "",
    "stages_done": 3,
    "stages": 3,
    "records": 1200,
    "inputs": [],
    "counts": {"rows": 40},
    "differences": 0,
    "keys": [],
    "summary": "40 rows are as the inputs say",
    "report": "",
    "omitted": 0,
}


def run_with(**changes: Any) -> JobRun:
    made: Any = {**RUN, **changes}
    return made  # type: ignore[no-any-return] # the members are the test's


def click(number: int, user: str = "alice") -> UserClick:
    return UserClick(id=f"{number:032x}", user_id=user, url="https://example.org/", at=number)


@dataclass
class World:
    """The environment of a test.

    Attributes:
        group: counts clicks; its processor runs as instance `worker`.
        clicks: the group's input.
        runs: where runs of jobs tell of themselves.
        http: to a console without keys and actions, with its token.
        said: The lines that it has written.
        signed: to a console with both, with the key.
    """

    kafka: Kafka
    group: Group[str, int]
    clicks: Stream[str, UserClick]
    statuses: Stream[str, ProcessStatus]
    runs: Stream[str, JobRun]
    windows: Stream[Windowed[str], int]
    http: httpx.Client
    said: list[str]
    signed: httpx.Client

    @property
    def sign_in_url(self) -> str:
        """Return the URL that the console without keys has printed last for browsers, whose code is valid once."""
        return opening(self.said)

    def emit(self, *users: str) -> None:
        with Emitter(self.clicks, self.kafka) as emitter:
            for number, user in enumerate(users):
                emitter.emit(user, click(number, user))

    def poison(self, user: str, value: bytes) -> None:
        with Emitter(Stream(self.clicks.name, key=String(), value=Bytes()), self.kafka) as emitter:
            emitter.emit_now(user, value)

    def count_in_minute(self, user: str, minute: int, count: int) -> None:
        """Write a row of the windowed table, as a flow would."""
        begin = 1_790_000_000_000 // 60_000 * 60_000 + minute * 60_000
        with Emitter(self.windows, self.kafka) as emitter:
            emitter.emit_now(Windowed(user, begin, begin + 60_000), count)

    def tell(self, key: str, status: ProcessStatus | None) -> None:
        """Write a status as a process would."""
        with Emitter(self.statuses, self.kafka) as emitter:
            emitter.emit_now(key, status)

    def tell_run(self, run: JobRun) -> None:
        """Write a run as a job would."""
        with Emitter(self.runs, self.kafka) as emitter:
            emitter.emit_now(run["run"], run)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, path: str, condition: Callable[[Any], Any], **query: Any) -> Any:
        """Ask until the answer is as expected, and return it."""

        def asked() -> Any:
            answer = self.http.get(path, params=query)
            return answer.json() if answer.status_code == 200 and condition(answer.json()) else None

        return wait_until(asked)


@contextmanager
def world_of(broker: Broker, folder: Path) -> Iterator[World]:
    topics = Topics(broker.bootstrap_servers)
    kafka = Kafka(broker.bootstrap_servers)
    with ExitStack() as stack:
        stack.callback(topics.delete_all)
        clicks = Stream(topics.create("clicks"), key=String(), value=Avro(USER_CLICK))
        seen = Stream(topics.create("seen"), key=String(), value=Avro("long"))

        def count(ctx: Context[str, int], event: UserClick) -> None:
            ctx.set((ctx.value or 0) + 1)
            ctx.emit(seen, event["user_id"], ctx.value or 0)

        group = Group(topics.name("count"), Input(clicks, count), Output(seen), Persist(Avro("long")))
        compact = {"cleanup.policy": "compact"}
        topics.create("count-table", config=compact)
        topics.create("count-dead-letters")
        topics.create("count-retry")
        status = topics.create("status", partitions=1, config=compact)
        runs = Stream(topics.create("runs", partitions=1, config=compact), key=String(), value=Avro(JOB_RUN))
        minutes: Stream[Windowed[str], int] = Stream(
            topics.create("windows-minutes", config=compact),
            key=WindowedKey(String(), 60_000),
            value=Avro("long"),
        )
        stack.enter_context(_processing(group, kafka, status, folder))
        settings = {"SERVICEKIT_RUNS_TOPIC": runs.name}
        signed = {
            "CONSOLE_ACTIONS": "true",
            "SERVICEKIT_API_KEYS": f"me:console+replay:{sha256(KEY.encode()).hexdigest()}",
        }
        (http, said), (with_keys, _) = [
            stack.enter_context(console_of(broker, status, folder / name, settings | more))
            for name, more in (("open", {"CONSOLE_TOKEN": TOKEN}), ("signed", signed))
        ]
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        with_keys.headers["Authorization"] = f"Bearer {KEY}"
        yield World(kafka, group, clicks, status_stream(status), runs, minutes, http, said, with_keys)


def opening(said: Sequence[str]) -> str:
    """Return the URL that a console has printed last."""
    return wait_until(lambda: [line[5:-1] for line in said if line.startswith("open http")])[-1]


@contextmanager
def _processing(group: Group[str, int], kafka: Kafka, status: str, folder: Path) -> Iterator[None]:
    registry = CollectorRegistry()
    board = StatusBoard("tests", "worker")
    processor = App(kafka, folder / "state", metrics=Metrics.register(registry)).processor(
        group, instance_id="worker"
    )
    board.processes(group, processor)
    thread = threading.Thread(target=processor.run)
    with publishing(board, registry, kafka, status):
        thread.start()
        try:
            yield
        finally:
            processor.stop()
            thread.join()


@contextmanager
def console_of(
    broker: Broker, status: str, folder: Path, more: Mapping[str, str]
) -> Iterator[tuple[httpx.Client, list[str]]]:
    """A console as a process, from its readiness to its end, and the lines that it writes."""
    environment = {
        "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
        "STREAMTABLE_LOG_FORMAT": "json",
        "STREAMTABLE_INSTANCE_ID": "console",
        "STREAMTABLE_STATE_DIR": str(folder),
        "SERVICEKIT_STATUS_TOPIC": status,
        **more,
    }
    process = Process("console.main", [], environment)
    try:
        with retrying_client(f"http://{process.address()}") as http:
            wait_until(lambda: http.get("/readyz").status_code == 200)
            yield http, process.output
        assert process.stop() == 0, process.output
    finally:
        process.close()
