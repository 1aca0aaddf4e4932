"""Recorded fleets: the statuses of processes, the page over them, and a small server for a browser. No broker is needed."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final

from services.console.tests.recorded_items import BEGIN, EMPTY, FILLED
from services.console.tests.world import status_with

from console.findings import Examiner
from console.fleet import Topic, graph_of, instances_of
from console.history import History
from console.web import PAGE
from contracts.records import ProcessStatus
from streamtable_admin.findings import Finding

STEP_MS: Final = 5_000


def graph(group: str, reads: Mapping[str, str], writes: Mapping[str, str]) -> str:
    """Return the graph that the processes of a group report; topics with how they are read and written."""
    edges = {
        way: [{"topic": topic, "how": how, "codecs": "String → Avro"} for topic, how in topics.items()]
        for way, topics in (("reads", reads), ("writes", writes))
    }
    return json.dumps({"group": group, **edges})


@dataclass
class Member:
    """A process of a group, or of a service.

    Attributes:
        change: Changes its status with each step of the recording; it is given the number of the step.
    """

    group: str
    instance: str
    reads: Mapping[str, str] = field(default_factory=dict)
    writes: Mapping[str, str] = field(default_factory=dict)
    service: str = "shop"
    role: str = "processor"
    host: str = "machine-1"
    pid: int = 7
    partitions: int = 12
    rate: float = 120.0
    change: Callable[[int], Mapping[str, Any]] = lambda step: {}
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.group or self.service}/{self.role}/{self.instance}"

    def status(self, step: int) -> ProcessStatus:
        now = BEGIN + step * STEP_MS
        streams = [topic for topic, how in self.reads.items() if how == "stream"]
        known: dict[str, Any] = {
            "service": self.service, "role": self.role, "group": self.group, "instance": self.instance,
            "host": self.host, "pid": self.pid, "started_at": BEGIN - 7_200_000, "at": now,
            "graph": graph(self.group, self.reads, self.writes) if self.group else "",
            "memory_bytes": 140 << 20,
        }  # fmt: skip
        if self.group:
            known |= {
                "partitions": [
                    {"partition": number, "state": "working", "remaining": 0, "total": 0}
                    for number in range(self.partitions)
                ],
                "inputs": [
                    {"topic": topic, "partition": number, "lag": 0, "records": 1000 + step}
                    for topic in streams
                    for number in range(self.partitions)
                ],
                "flows": [
                    {"topic": topic, "direction": way, "records": 1000, "rate": self.rate}
                    for way, topics in (("in", streams), ("out", self.writes))
                    for topic in topics
                ],
                "committed_at": now - 400, "commits": 1000 + step, "commit_ms": 18.0 + step % 7, "store_bytes": 3 << 20,
            }  # fmt: skip
        return status_with(**{**known, **self.more, **self.change(step)})


def lagging(lag: Callable[[int], int], member: Member) -> Callable[[int], Mapping[str, Any]]:
    """Return a change that gives the first partition of each input a lag."""

    def change(step: int) -> Mapping[str, Any]:
        inputs = [
            {"topic": topic, "partition": 0, "lag": lag(step), "records": 9}
            for topic, how in member.reads.items()
            if how == "stream"
        ]
        return {"inputs": inputs}

    return change


def inventory(process: int = 1) -> list[Member]:
    """The four groups of a flow in one process."""
    host, pid, instance = f"machine-{process}", 40 + process, f"inventory-{process}"
    groups: dict[str, tuple[dict[str, str], dict[str, str]]] = {
        "inventory": (
            dict.fromkeys(
                ("stock-movements", "price-adjustments", "inventory-adjusted-answers", "inventory-categorized-answers"),
                "stream",
            ),
            dict.fromkeys(
                ("reorders", "inventory-adjusted-subscriptions", "inventory-categorized-subscriptions",
                 "inventory-by-category", "inventory-by-product"), "stream",
            ) | dict.fromkeys(("inventory-levels", "inventory-stock", "inventory-prices"), "state"),
        ),
        "inventory-products": (
            dict.fromkeys(("products", "inventory-adjusted-subscriptions", "inventory-categorized-subscriptions"), "stream"),
            dict.fromkeys(("inventory-adjusted-answers", "inventory-categorized-answers"), "stream")
            | {"inventory-products-catalogue": "state"},
        ),
        "inventory-by-category": ({"inventory-by-category": "stream"}, {"inventory-by-category-totals": "state"}),
        "inventory-by-product": ({"inventory-by-product": "stream"}, {"inventory-by-product-hours": "state"}),
    }  # fmt: skip
    times = [{"partition": number, "watermark": BEGIN - 4_000, "due_behind_ms": 0} for number in range(12)]
    due = [
        {"topic": "inventory-by-product-hours", "partition": number, "rows": 340, "late": 0, "late_share": 0.0, "moved_by": ""}
        for number in range(12)
    ]  # fmt: skip
    return [
        Member(name, instance, reads, writes, "inventory", host=host, pid=pid, rate=40.0,
               more={"event_times": times, "due": due} if name == "inventory-by-product" else {})
        for name, (reads, writes) in groups.items()
    ]  # fmt: skip


def shop() -> list[Member]:
    """A fleet of a few groups and services that is well."""
    clicks = Member("click-count", "worker-1", {"user-clicks": "stream"}, {"click-count-table": "table"})
    second = Member("click-count", "worker-2", clicks.reads, clicks.writes, pid=8, host="machine-2")
    status = Member(
        "user-status", "status-1", {"user-clicks": "stream", "click-count-table": "join"},
        {"user-status-table": "table", "status-alerts": "stream"}, pid=9, rate=95.0,
    )  # fmt: skip
    return [
        *inventory(1), *inventory(2), clicks, second, status,
        Member("", "emitter-1", service="click-count", role="emitter", more={"emits": ["user-clicks"]}),
        Member("", "view-1", service="click-count", role="view", more={
            "copies": [{"table": "click-count-table", "partitions": 12, "age_seconds": 0.4}], "requests": 900, "request_rate": 31.0}),
        Member("", "view-1", service="inventory", role="view", more={
            "copies": [{"table": "inventory-stock", "partitions": 12, "age_seconds": 0.6}], "requests": 40}),
        Member("", "ordering-1", service="inventory", role="emitter", more={"emits": ["stock-movements", "products"]}),
    ]  # fmt: skip


def calling(*, failing: bool = True) -> list[Member]:
    """Two processes order at a supplier, which is away for the last minutes if it fails."""

    def calls(step: int) -> Mapping[str, Any]:
        late = max(0, step - 40) if failing else 0
        one = {"call": "place", "answered": 900 + step, "rate": 0.0 if late else 1.5}
        return {
            "calls": [
                {
                    **one,
                    "pending": min(late, 24) or 1,
                    "oldest_seconds": 5.0 * late or 0.2,
                    "failed": late // 6,
                }
            ]
        }

    ordering = [
        Member(
            "inventory-ordering", f"ordering-{number}", {"reorders": "stream"},
            {"inventory-ordering-table": "table", "orders": "stream"}, "inventory", host=f"machine-{number}", pid=60 + number,
            change=calls,
        )
        for number in (1, 2)
    ]  # fmt: skip
    return [*shop(), *ordering]


def aborting() -> list[Member]:
    """Two groups abort every commit for eight minutes."""
    found = shop()
    for member in found:
        if member.group in {"inventory", "inventory-products"}:
            member.change = lambda step: {
                "aborts": max(0, step - 3) // 3, "committed_at": BEGIN, "commits": 1000,
                "flows": [], "abort_reason": "records were not acknowledged in 4 s",
            }  # fmt: skip
    return found


def overload(member: Member) -> Callable[[int], Mapping[str, Any]]:
    change = lagging(lambda step: 400 * max(0, step - 20), member)
    return lambda step: {**change(step), "dead_letters": step // 30}


def overloaded() -> list[Member]:
    """One group falls behind, and cannot process some records."""
    found = shop()
    for member in found:
        if member.group == "click-count":
            member.change = overload(member)
    return found


def crashed() -> list[Member]:
    """A machine is gone, a process has failed, and a view does not keep up."""
    found = shop()
    for member in found:
        if member.host == "machine-2":
            member.change = lambda step: {"at": BEGIN + min(step, 60) * STEP_MS}
        if member.group == "user-status":
            member.change = lambda step: {
                "at": BEGIN + min(step, 40) * STEP_MS, **({"state": "failed", "error": "RecordTooLarge user-clicks 3 91822"} if step >= 40 else {}),
            }  # fmt: skip
        if member.role == "view" and member.service == "click-count":
            member.change = lambda step: {
                "copies": [{"table": "click-count-table", "partitions": 12, "age_seconds": 0.4 + step * 2}]
            }
    return found


def large(chains: int = 10, groups: int = 4, processes: int = 5) -> list[Member]:
    """Two hundred processes and five hundred topics: ten teams, with four groups each that feed one another."""
    return [
        Member(
            f"team-{chain}-stage-{stage}", f"worker-{process}",
            {f"team-{chain}-events-{stage}": "stream"} | {f"team-{chain}-source-{stage}-{each}": "stream" for each in range(2)},
            {f"team-{chain}-events-{stage + 1}": "stream", f"team-{chain}-alerts-{stage}": "stream",
             f"team-{chain}-stage-{stage}-table": "table"}
            | {f"team-{chain}-stage-{stage}-state-{each}": "state" for each in range(7)},
            host=f"machine-{process}", pid=100 + chain * groups + stage, partitions=12,
        )
        for chain in range(chains)
        for stage in range(groups)
        for process in range(processes)
    ]  # fmt: skip


class Recording:
    """The documents of a fleet after each step, as the console would send them."""

    def __init__(
        self, members: list[Member], steps: int = 100, examined: Callable[[], list[Finding]] = list
    ) -> None:
        self.members, self.step, self._examined = members, 0, examined
        self._examiner, self._history = Examiner(), History()
        names = {topic for member in members for topic in (*member.reads, *member.writes)}
        self._statuses: dict[str, ProcessStatus] = {}
        self._topics = {
            name: Topic(12, 1000 * (1 + number % 40), 12.5) for number, name in enumerate(sorted(names))
        }
        if members:
            self._topics["streamtable-runs"] = Topic(1, 3, 0.0)
        while len(self._topics) < 500 and len(members) >= 200:
            self._topics[f"unused-{len(self._topics)}"] = Topic(12, 0, 0.0)
        for _ in range(steps):
            self.next()

    def next(self) -> None:
        """Let the processes report once more."""
        self.step += 1
        self._now = BEGIN + self.step * STEP_MS
        self._statuses = {member.key: member.status(self.step) for member in self.members}
        self._instances = instances_of(self._statuses, self._now)
        self._history.look(self._instances, self._now)
        self._history.measure(self._instances, self._now)
        self._findings = self._examiner.look(self._statuses, self._instances, self._now, self._examined())

    def document(self, path: str) -> Any:
        """Return what the console answers now; None if it is not recorded."""
        match path:
            case "/api/fleet":
                return {
                    "now": self._now, "ready": True, "instances": self._instances, "findings": self._findings, "checked": self._now - 20_000,
                    "graph": graph_of(self._statuses, self._instances, self._topics),
                    "topics": [
                        {"topic": name, "partitions": each.partitions, "records": each.records, "rate": each.rate}
                        for name, each in sorted(self._topics.items())
                    ],
                    "events": self._history.count, "actions": False, "runs_topic": "streamtable-runs",
                }  # fmt: skip
            case "/api/history":
                return {"events": self._history.events()}
            case "/api/lags":
                return {"lags": self._history.lags()}
            case "/api/measures":
                return {"groups": self._history.measures()}
        return (FILLED if self.members else EMPTY).get(path)


class Pages:
    """A server of the console's page over one recording at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.recording = Recording([], steps=1)
        self._changed = threading.Condition()
        self.version = 0

    def play(self, recording: Recording) -> None:
        with self._changed:
            self.recording = recording
            self.version += 1
            self._changed.notify_all()

    def answer(self, path: str) -> tuple[str, bytes] | None:
        if path in PAGE:
            name, kind = PAGE[path]
            return kind, files("console").joinpath("page", *name.split("/")).read_bytes()
        document = self.recording.document(path.partition("?")[0])
        return None if document is None else ("application/json", json.dumps(document).encode())

    def after(self, seen: int) -> tuple[int, bytes]:
        """Wait for a version that differs for at most a second, and return it with its event."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != seen, timeout=1)
            fleet = json.dumps(self.recording.document("/api/fleet"))
            return self.version, f"event: fleet\ndata: {fleet}\n\n".encode()


@contextmanager
def pages() -> Iterator[Pages]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    found = Pages(f"http://127.0.0.1:{server.server_port}")
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def do_GET(self) -> None:
            if self.path.partition("?")[0].endswith("/events"):
                self._follow(fleet=self.path == "/api/events")
                return
            answer = found.answer(self.path)
            self.send_response(404 if answer is None else 200)
            kind, body = answer or ("application/json", b'{"detail": "it is not recorded"}')
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _follow(self, *, fleet: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            seen = -1
            while not closing.is_set():
                version, event = found.after(seen)
                try:
                    self.wfile.write(event if fleet and version != seen else b": still here\n\n")
                    self.wfile.flush()
                except OSError:
                    return
                seen = version

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
