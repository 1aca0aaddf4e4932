"""Bounded reads: the committed records of partitions from given offsets up to given offsets, in no consumer group."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from streamtable.base.ports import TableReader
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import RetryLater
from streamtable_admin.cluster import Cluster

POLL_RECORDS = 5_000
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of a read.

    Attributes:
        stall: The seconds without progress after which the broker is asked whether an open transaction is the reason.
        give_up: The seconds without progress after which the read fails.
        total: The seconds after which the read returns the records found so far, or fails if it has to be complete.
        bytes_max: The maximum size in bytes of the records kept in memory, where records are collected.
    """

    stall: float = 2.0
    give_up: float = 30.0
    total: float = float("inf")
    bytes_max: float = float("inf")


PATIENT = ReadLimits()


def read_to(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    complete: bool = False,
    reached: dict[TopicPartition, int] | None = None,
    advance: Callable[[int], None] | None = None,
    limits: ReadLimits = PATIENT,
    enough: Callable[[TopicPartition], bool] = lambda _: False,
) -> Iterator[RecordBatch]:
    """Yield the committed records from `starts` up to, not including, `ends`.

    Records behind an open transaction are skipped after a while, and reported to the cluster's observer.

    Args:
        cluster: The cluster to read from.
        starts: The first offset of each partition.
        ends: The offset behind the last record of each partition.
        complete: Wait for open transactions, and fail rather than leave a record out.
        reached: Filled with the offset that the read has reached in each partition.
        advance: Called with the number of offsets done, in place of the cluster's observer.
        limits: The limits of the read.
        enough: Whether no more records of a partition are needed.

    Raises:
        RetryLater: The broker has stopped answering; or, if the read has to be complete, a transaction stays open.
    """
    reached = {} if reached is None else reached
    reached.update(ends)
    starts = {place: start for place, start in starts.items() if start < ends[place]}
    if not starts:
        return
    total = sum(ends[place] - start for place, start in starts.items())
    progress = nullcontext(advance) if advance else cluster.observer.reading(total)
    with reader_at(cluster, starts) as reader, progress as report:
        pending = set(starts)
        done = 0
        began = moved_at = time.monotonic()
        while pending:
            for batch in reader.poll(POLL_RECORDS, POLL_S):
                part = _below(batch, ends[batch.place]) if batch.place in pending else None
                if part:
                    yield part
            positions = {place: reader.position(place) for place in starts}
            now_done = sum(min(positions[place], ends[place]) - start for place, start in starts.items())
            pending = {place for place in pending if positions[place] < ends[place] and not enough(place)}
            now = time.monotonic()
            if now_done > done:
                moved_at, done = now, now_done
                report(done)
            stalled = now - moved_at
            over = now - began > limits.total
            if pending and not complete:
                stuck = stalled > limits.stall and _held_back(cluster, positions, pending, ends)
                if stuck or over:
                    reached.update({place: positions[place] for place in pending})
                    return
            if pending and (stalled > limits.give_up or over):
                raise RetryLater(
                    f"no record of {min(pending)} came for {stalled:.0f} s: the broker does not answer, or a "
                    "transaction stays open"
                )


def follow(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> Iterator[RecordBatch | None]:
    """Yield committed records from `starts` on without end, and None whenever there is none at the moment."""
    with reader_at(cluster, starts) as reader:
        while True:
            batches = reader.poll(POLL_RECORDS, POLL_S)
            yield from batches
            if not batches:
                yield None


@contextmanager
def reader_at(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> Iterator[TableReader]:
    """Open a reader of committed records at the given offsets."""
    reader = cluster.kafka.table_reader(cluster.client_name)
    try:
        reader.assign(starts)
        yield reader
    finally:
        reader.close()


def _below(batch: RecordBatch, end: int) -> RecordBatch:
    return batch if batch.last_offset < end else batch.only([offset < end for offset in batch.offsets])


def _held_back(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    pending: set[TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> bool:
    """Return whether all that is missing belongs to open transactions, and report it if so."""
    stable = cluster.admin.stable_ends(pending)
    if any(positions[place] < min(stable.get(place, 0), ends[place]) for place in pending):
        return False
    for place in sorted(pending):
        cluster.observer.held_back(place, positions[place], ends[place])
    return True
