"""Polls all processes once a second and the topics every other second, and keeps the result."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Event, Thread
from typing import Any, Final, Self

import structlog

from console.examination import Examination
from console.findings import Examiner
from console.fleet import Topic, graph_of, instances_of
from console.history import History, StatusReport
from console.lags import Lags
from console.statuses import statuses_that_fit
from servicekit.http.server_events import ServerEvent
from streamtable import View
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater
from streamtable_admin.cluster import INTERNAL_PREFIX, Cluster

log = structlog.get_logger()
_LOOK_SECONDS: Final = 0.1
EVERY_SECONDS: Final = 1.0
TOPICS_EVERY: Final = 2
PLACES_MAX: Final = 5000
WARNED_MAX: Final = 1000


class Collector:
    """Keeps the latest snapshot of the fleet. Any thread may read it.

    Args:
        view: The view of the status topic.
        cluster: The cluster, to list topics; used by this collector's thread only.
        settings: The settings of the console that the page shows, such as whether actions are on.
        lags: Counts the records left to read.
        examination: Checks brokers and groups.
        past: Returns earlier reports of processes; called once, by this collector's thread.
    """

    def __init__(
        self,
        view: View[bytes, bytes],
        cluster: Cluster,
        settings: Mapping[str, Any],
        lags: Lags,
        examination: Examination,
        past: Callable[[], Iterable[StatusReport]],
    ) -> None:
        self._view = view
        self._admin = cluster.admin
        self._settings = settings
        self._lags = lags
        self._examination = examination
        self._past = past
        self.history = History()
        self._examiner = Examiner()
        self._number = 0
        self._document: dict[str, Any] = {
            "now": 0,
            "ready": False,
            "instances": [],
            "findings": [],
            "checked": None,
            "graph": {"nodes": [], "edges": []},
            "topics": [],
            "events": 0,
            **settings,
        }
        self._topics: dict[str, Topic] = {}
        self._ends: tuple[float, Mapping[str, int]] = (0.0, {})
        self._turn = 0
        self._warned: set[bytes] = set()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def document(self) -> dict[str, Any]:
        """The latest snapshot."""
        return self._document

    def topic_names(self) -> list[str]:
        """The topics of the broker at the last poll."""
        return sorted(self._topics)

    @property
    def number(self) -> int:
        """The number of the latest snapshot; it grows by one with each."""
        return self._number

    def look(self) -> None:
        """Poll once."""
        now_ms = _now_ms()
        if self._turn % TOPICS_EVERY == 0:
            self._try(self._look_at_topics, "topics are not known")
        ready = self._view.ready
        statuses = dict(statuses_that_fit(self._view.iterate(), self._warn)) if ready else {}
        if self._turn % TOPICS_EVERY == 0:
            self._lags.look(statuses)
        statuses = self._lags.corrected(statuses)
        instances = instances_of(statuses, now_ms)
        if ready:
            self.history.look(instances, now_ms)
            if self._turn % TOPICS_EVERY == 0:
                self.history.measure(instances, now_ms)
        self._turn += 1
        checked, examined = self._examination.latest
        document = {
            "now": now_ms,
            "ready": ready,
            "instances": instances,
            "findings": self._examiner.look(statuses, instances, now_ms, examined),
            "checked": checked,
            "graph": graph_of(statuses, instances, self._topics),
            "topics": [
                {"topic": name, "partitions": topic.partitions, "records": topic.records, "rate": topic.rate}
                for name, topic in sorted(self._topics.items())
            ],
            "events": self.history.count,
            **self._settings,
        }
        self._document = document
        self._number += 1  # set last: a reader that sees the number finds the snapshot

    def _run(self) -> None:
        self._try(self._recall, "earlier reports are not known")
        while not self._stopping.wait(EVERY_SECONDS):
            self._try(self.look, "processes are not known")

    def _recall(self) -> None:
        self.history.recall(self._examiner.recall(self._past()), _now_ms())

    def _try(self, act: Callable[[], None], failing: str) -> None:
        try:
            act()
        except RetryLater as error:
            log.warning(failing, reason=str(error))
        except Exception:
            # A right may be taken away for a while, and other programs may report anything: the next poll may succeed.
            log.exception(failing)

    def _warn(self, key: bytes, text: str, reason: str) -> None:
        """Log a warning once for each key, and for a thousand keys at most."""
        if key not in self._warned and len(self._warned) < WARNED_MAX:
            self._warned.add(key)
            log.warning(text, key=key[:100].hex(), reason=reason)

    def _look_at_topics(self) -> None:
        partitions = {
            name: n
            for name, n in self._admin.topic_partitions().items()
            if not name.startswith(INTERNAL_PREFIX)
        }
        places = [
            TopicPartition(name, number) for name, count in partitions.items() for number in range(count)
        ]
        marks = self._admin.watermarks_known(places[:PLACES_MAX])
        ends: dict[str, int] = dict.fromkeys(partitions, 0)
        records: dict[str, int] = dict.fromkeys(partitions, 0)
        for place, mark in marks.items():
            ends[place.topic] += mark.high
            records[place.topic] += mark.high - mark.low
        now, (then, before) = time.monotonic(), self._ends
        self._topics = {
            name: Topic(
                count,
                records[name],
                max(0.0, (ends[name] - before[name]) / (now - then)) if name in before else None,
            )
            for name, count in partitions.items()
        }
        self._ends = now, ends


class Pictures:
    """A context whose source yields the present snapshot, and each later one."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._seen = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    async def __call__(self, timeout: float) -> ServerEvent | None:  # noqa: ASYNC109 - the signature of a source
        end = asyncio.get_running_loop().time() + timeout
        while (number := self._collector.number) == self._seen:
            if asyncio.get_running_loop().time() >= end:
                return None
            await asyncio.sleep(_LOOK_SECONDS)  # a snapshot every second, for the few users of a console
        self._seen = number
        return ServerEvent("fleet", await asyncio.to_thread(self._collector.document))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
