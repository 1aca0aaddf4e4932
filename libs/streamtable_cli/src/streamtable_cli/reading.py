"""Reading parts of topics to where they end now, with a bar on standard error when that takes long."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from streamtable import lag
from streamtable.errors import RetryLater
from streamtable.kafka.admin import KafkaAdmin
from streamtable.kafka.reader import KafkaTableReader
from streamtable.lag import readable
from streamtable.types import RecordBatch, TopicPartition
from streamtable_cli.output import console, note
from streamtable_cli.session import Session

RECORDS = 5_000
POLL_S = 0.1
STALL_S = 2.0
"""Seconds without progress after which the broker is asked whether there is more to come."""
GIVE_UP_S = 30.0
BAR_AFTER_S = 1.0


@contextmanager
def reader_of(session: Session, starts: Mapping[TopicPartition, int]) -> Iterator[KafkaTableReader]:
    """Reads committed records, in no group, from the given offsets on."""
    reader = session.kafka.table_reader("streamtable-cli")
    try:
        reader.assign(starts)
        yield reader
    finally:
        reader.close()


def read_to(
    session: Session,
    admin: KafkaAdmin,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    whole: bool = False,
    reached: dict[TopicPartition, int] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[RecordBatch]:
    """Committed records from `starts` up to, not including, `ends`.

    What an open transaction holds back is left out after a while, with a note; with `whole`, waited for. When all is
    read, `reached` holds how far that was, for each partition. `advance` is told how many offsets are done; without
    it there is a bar.

    Raises:
        RetryLater: the broker has stopped answering, or a transaction stays open.
    """
    reached = {} if reached is None else reached
    reached.update(ends)
    starts = {place: start for place, start in starts.items() if start < ends[place]}
    if not starts:
        return
    total = sum(ends[place] - start for place, start in starts.items())
    with reader_of(session, starts) as reader, nullcontext(advance) if advance else bar(total) as moved:
        open_ones = set(starts)
        done = 0
        moved_at = time.monotonic()
        while open_ones:
            batches = reader.poll(RECORDS, POLL_S)
            for batch in batches:
                part = _below(batch, ends[batch.place]) if batch.place in open_ones else None
                if part:
                    yield part
            now_done = sum(min(reader.position(p), ends[p]) - s for p, s in starts.items())
            if now_done > done:
                moved_at = time.monotonic()
                done = now_done
                moved(done)
            elif time.monotonic() - moved_at > STALL_S:
                if not whole and _held_back(admin, reader, open_ones, ends):
                    reached.update({place: reader.position(place) for place in open_ones})
                    return
                if time.monotonic() - moved_at > GIVE_UP_S:
                    raise RetryLater(
                        f"nothing came from {min(open_ones)} for {GIVE_UP_S:.0f} s: no answer from Kafka, or a "
                        "transaction that stays open"
                    )
            open_ones = {place for place in open_ones if reader.position(place) < ends[place]}


def unread(
    session: Session,
    admin: KafkaAdmin,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """How many records can be read from `starts` on, to the end, or up to `ends`; see `streamtable.lag`."""

    def count(
        begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> Counter[TopicPartition]:
        found = Counter[TopicPartition]()
        for batch in read_to(session, admin, begin, end):
            found[batch.place] += len(batch)
        return found

    return lag.unread(readable(admin, starts), starts, count, ends)


def follow(session: Session, starts: Mapping[TopicPartition, int]) -> Iterator[RecordBatch | None]:
    """Committed records from `starts` on, for ever; None where there is nothing at the moment."""
    with reader_of(session, starts) as reader:
        while True:
            batches = reader.poll(RECORDS, POLL_S)
            yield from batches
            if not batches:
                yield None


def _below(batch: RecordBatch, end: int) -> RecordBatch:
    return batch if batch.last_offset < end else batch.only([offset < end for offset in batch.offsets])


def _held_back(
    admin: KafkaAdmin,
    reader: KafkaTableReader,
    places: set[TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> bool:
    """Whether all that is missing belongs to open transactions; says so."""
    stable = admin.stable_ends(places)
    if any(reader.position(place) < min(stable.get(place, 0), ends[place]) for place in places):
        return False
    for place in sorted(places):
        note(
            f"note: {place} is shown up to {reader.position(place)}; what follows up to {ends[place]} belongs to a "
            "transaction that is still open"
        )
    return True


@contextmanager
def bar(total: int) -> Iterator["Advance"]:
    """Offsets read of `total`, on a terminal."""
    columns = (
        TextColumn("reading"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(
        *columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    )
    advance = Advance(progress, total)
    try:
        yield advance
    finally:
        progress.stop()


class Advance:
    """Moves the bar; it appears only when the reading has taken a while."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._began = time.monotonic()
        self._task: TaskID | None = None

    def __call__(self, done: int) -> None:
        if self._task is None:
            if time.monotonic() - self._began < BAR_AFTER_S:
                return
            self._task = self._progress.add_task("reading", total=self._total)
            self._progress.start()
        self._progress.update(self._task, completed=done)
