"""Tables to browse: a view of each, opened when it is first requested."""

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

import structlog

from console.clusters import Clusters
from console.decode import PageDecoder
from servicekit.http.server_events import ServerEvent
from streamtable import App, Bytes, ChangesMissed, Kafka, Table, View, Watch
from streamtable.observe import Metrics
from streamtable_admin.errors import NoSuchTopic

log = structlog.get_logger()
COPIES_MAX: Final = 16
BATCH_SECONDS: Final = 0.5
BATCH_ROWS: Final = 200
_VIEWS: Final = "console-tables"
_MEMORY_BYTES: Final = 8 << 20
_WATCH_BYTES: Final = 4 << 20
_WHOLE_SECONDS: Final = 4.0


class NoTable(Exception):
    """The topic is not compacted: its records are no rows."""


class Tables:
    """Copies of tables, sixteen at most, in use and on disk: the least recently used one is removed. Any thread.

    Args:
        kafka: The cluster.
        state_dir: The folder of the copies.
        clusters: Opens the cluster, to describe topics.
        decoder: Decodes keys and values.
        metrics: The metrics of positions and ages.
    """

    def __init__(
        self, kafka: Kafka, state_dir: Path, clusters: Clusters, decoder: PageDecoder, metrics: Metrics
    ) -> None:
        self._app = App(kafka, state_dir, name=_VIEWS, memory_bytes=_MEMORY_BYTES, metrics=metrics)
        self._copies = state_dir / "views" / _VIEWS
        self._clusters = clusters
        self._decoder = decoder
        self._lock = Lock()
        self._views: OrderedDict[str, View[bytes, bytes]] = OrderedDict()

    def close(self) -> None:
        with self._lock:
            self._views.clear()
        self._app.close()

    def rows(self, name: str, prefix: bytes, after: bytes | None, limit: int) -> dict[str, Any]:
        """Return a page of rows whose key begins with `prefix`, in key order, only those after a key.

        Raises:
            NoSuchTopic: The topic does not exist.
            NoTable: The topic is no table.
            NotReady: The copy is being loaded.
        """
        view = self.whole(name)
        found = view.iterate(prefix or None, after)
        # One at a time: the shown part of a row is limited in size, the row is not.
        with self._clusters.look():
            rows = [self.row(key, value) for key, value in islice(found, limit)]
            more = next(found, None) is not None
        position = view.position().values()
        return {
            "rows": rows,
            "next": rows[-1]["id"] if more else None,
            "age_seconds": max((each.age_seconds for each in position), default=0.0),
            "offset": sum(each.offset for each in position),
        }

    def row(self, key: bytes, value: bytes | None) -> dict[str, Any]:
        shown = None if value is None else self._decoder.show(value)
        return {"id": key.hex(), "key": self._decoder.show(key, part="key"), "value": shown}

    def whole(self, name: str) -> View[bytes, bytes]:
        """Return the copy of a table once it is loaded. Raises like `rows`."""
        view = self.view(name)
        view.wait_ready(_WHOLE_SECONDS)
        return view

    def view(self, name: str) -> View[bytes, bytes]:
        """Return the copy of a table. Raises `NoSuchTopic`, `NoTable`, `RetryLater`."""
        with self._lock:
            if name in self._views:
                self._views.move_to_end(name)
                return self._views[name]
        with self._clusters.connected() as cluster:
            topic = cluster.admin.topics([name]).get(name)
        if topic is None:
            raise NoSuchTopic(f"there is no topic {name!r}")
        if not topic.compacted:
            raise NoTable
        with self._lock:
            if name not in self._views:
                table = Table(name, Bytes(), Bytes())
                self._views[name] = self._app.view(table)
                while len(self._views) > COPIES_MAX:
                    self._views.popitem(last=False)[1].close()
                self._remove_beyond(COPIES_MAX)
            return self._views[name]

    def _remove_beyond(self, most: int) -> None:
        """Remove copies from disk, also of earlier runs, until this many are left: the oldest that are not open."""
        try:
            closed = sorted(
                (each for each in self._copies.iterdir() if each.name not in self._views),
                key=lambda folder: folder.stat().st_mtime,
            )
            for folder in closed[: max(0, len(closed) + len(self._views) - most)]:
                shutil.rmtree(folder)
        except FileNotFoundError:
            return  # the first copy has not been made yet
        except OSError as error:
            log.warning("a copy cannot be removed", reason=str(error))


class ChangedRows:
    """The rows that changed in a period: their number, and the newest ones up to a limit."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()
        self._newest: OrderedDict[bytes, bytes | None] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes, value: bytes | None) -> None:
        """Add a change; beyond the limit the oldest ones are dropped."""
        self._keys.add(key)
        self._bytes += len(value or b"") - len(self._newest.pop(key, None) or b"")
        self._newest[key] = value
        while len(self._newest) > BATCH_ROWS or (self._bytes > _WATCH_BYTES and len(self._newest) > 1):
            self._bytes -= len(self._newest.popitem(last=False)[1] or b"")

    def newest(self, shown: Callable[[bytes, bytes | None], dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the newest rows as they are shown, the oldest of them first."""
        return [shown(key, value) for key, value in self._newest.items()]


class RowChanges:
    """A context whose source yields the changed rows twice a second, the newest of each key.

    Args:
        tables: The copies of tables.
        name: The name of the table.
        prefix: The prefix of the keys.
    """

    def __init__(self, tables: Tables, name: str, prefix: bytes) -> None:
        self._tables = tables
        self._name = name
        self._prefix = prefix
        self._watch: Watch[bytes, bytes]
        self._ended = False

    def __enter__(self) -> Self:
        view = self._tables.view(self._name)
        self._watch = view.watch(prefix=self._prefix, capacity_bytes=_WATCH_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()

    async def __call__(self, timeout: float) -> ServerEvent | None:  # noqa: ASYNC109 - the signature of a source
        if self._ended:
            raise StopAsyncIteration
        try:
            rows = await self._changes(timeout)
        except ChangesMissed:
            self._ended = True
            return ServerEvent("missed", {})
        if not rows:
            if self._watch.ended:
                raise StopAsyncIteration
            return None
        return ServerEvent("rows", {"rows": rows.newest(self._tables.row), "changed": len(rows)})

    async def _changes(self, timeout: float) -> ChangedRows:  # noqa: ASYNC109 - the same
        """Wait for a change, and collect those that follow it within `BATCH_SECONDS`."""
        rows = ChangedRows()
        end = asyncio.get_running_loop().time() + timeout
        for count in range(50 * BATCH_ROWS):
            try:
                async with asyncio.timeout_at(end):
                    change = await self._watch.next_async()
            except TimeoutError:
                break
            if change is None:
                break
            rows.add(change.key, change.value)
            if not count:
                end = asyncio.get_running_loop().time() + BATCH_SECONDS
        return rows
