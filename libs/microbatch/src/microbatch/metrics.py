"""Metrics of micro-batches, in addition to the metrics of every processor: batches and store calls."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from microbatch.stores.port import Driver, Found, SearchDriver, VersionedFields, WriteResult
from streamtable.base.tracing import UNTRACED, Tracer
from streamtable.observe import instrument, registered

T = TypeVar("T")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_RECORDS = (1, 10, 100, 1_000, 5_000, 10_000, 20_000, 50_000)


_OF_STORE = ("group", "operation")
_counter, _histogram = partial(instrument, Counter), partial(instrument, Histogram)


# ruff: noqa: RUF009 - an instrument is declared by the field that `instrument` returns
@dataclass(frozen=True)
class BatchMetrics:
    """The instruments of one process. All have the label `group`; the store's also have `operation`: read or write.

    Attributes:
        records: The number of records of a batch.
        age_seconds: The time from the arrival of a batch's first record to its end.
        seconds: The duration of `process`, including its reads and awaits.
        failures: Batches that were undone, with the label `reason`: the name of the error.
        store_operations: Round trips, including failed ones.
        store_keys: The keys of the round trips.
        store_bytes: The bytes of the rows that were read or written.
        store_seconds: The duration of round trips.
        store_retries: Keys without an answer, which are retried.
        store_refused: Writes rejected because a later owner has written.
    """

    records: Histogram = _histogram("microbatch_records", "Records of a batch", "group", buckets=_RECORDS)
    age_seconds: Histogram = _histogram(
        "microbatch_age_seconds", "From the first record of a batch to its end", "group", buckets=_SECONDS
    )
    seconds: Histogram = _histogram(
        "microbatch_seconds", "Duration of process(batch, send)", "group", buckets=_SECONDS
    )
    failures: Counter = _counter("microbatch_failures", "Batches that were undone", "group", "reason")
    store_operations: Counter = _counter(
        "central_store_operations", "Round trips to the central store", *_OF_STORE
    )
    store_keys: Counter = _counter("central_store_keys", "Keys read or written", *_OF_STORE)
    store_bytes: Counter = _counter("central_store_bytes", "Bytes of rows read or written", *_OF_STORE)
    store_seconds: Histogram = _histogram(
        "central_store_seconds", "Duration of round trips", *_OF_STORE, buckets=_SECONDS
    )
    store_retries: Counter = _counter("central_store_retries", "Keys that were not answered", *_OF_STORE)
    store_refused: Counter = _counter("central_store_refused", "Writes refused as out of date", "group")

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Create the instruments in a registry, once for each registry."""
        return registered(cls, registry)


class MeteredDriver:
    """A driver that counts, traces and serializes the calls of another one; recoveries call from their own thread.

    Args:
        driver: The driver to call.
        metrics: The metrics to update.
        group: The group for their label.
        tracer: The tracer that gets a span for each call.
    """

    def __init__(self, driver: Driver, metrics: BatchMetrics, group: str, tracer: Tracer = UNTRACED) -> None:
        self.ttl: float | None = getattr(driver, "ttl", None)
        self._driver = driver
        self._metrics = metrics
        self._group = group
        self._tracer = tracer
        self._lock = threading.Lock()

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        found = self._timed("read", keys, lambda: self._driver.read(keys, timeout))
        size = sum(len(row.data) for row in found.rows.values())
        self._metrics.store_bytes.labels(self._group, "read").inc(size)
        self._metrics.store_retries.labels(self._group, "read").inc(len(found.failed))
        return found

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        return self._written(rows, lambda: self._driver.write(rows, number, timeout))

    def write_found_by(
        self,
        rows: Mapping[bytes, bytes | None],
        number: int | None,
        timeout: float,
        fields: Mapping[bytes, VersionedFields],
    ) -> WriteResult:
        """Write rows, with their search fields if the server can search."""
        driver = self._driver
        if isinstance(driver, SearchDriver):
            return self._written(rows, lambda: driver.write_found_by(rows, number, timeout, fields))
        return self.write(rows, number, timeout)

    def flush(self, timeout: float) -> None:
        with self._lock:
            self._driver.flush(timeout)

    def close(self) -> None:
        self._driver.close()

    def _written(self, rows: Mapping[bytes, bytes | None], write: Callable[[], WriteResult]) -> WriteResult:
        written = self._timed("write", list(rows), write)
        size = sum(len(data or b"") for data in rows.values())
        self._metrics.store_bytes.labels(self._group, "write").inc(size)
        self._metrics.store_retries.labels(self._group, "write").inc(len(written.failed))
        self._metrics.store_refused.labels(self._group).inc(len(written.refused))
        return written

    def _timed(self, operation: str, keys: Sequence[bytes], ask: Callable[[], T]) -> T:
        labels = self._group, operation
        self._metrics.store_operations.labels(*labels).inc()
        self._metrics.store_keys.labels(*labels).inc(len(keys))
        with self._tracer.ask(self._group, operation, len(keys)), self._lock:
            began = time.perf_counter()
            try:
                return ask()
            except Exception:
                self._metrics.store_retries.labels(*labels).inc(len(keys))
                raise
            finally:
                self._metrics.store_seconds.labels(*labels).observe(time.perf_counter() - began)
