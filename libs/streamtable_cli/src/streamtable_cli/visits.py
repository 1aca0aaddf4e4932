"""Runs of a visit as records of `<group>-visits`: started once, followed to their end.

All records that start a run are one transaction. All starts of a group share a transactional id: a start fences an
earlier unfinished one, which aborts it, and only then checks whether the run was started before.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import StreamtableError
from streamtable.graph.visiting import VisitProgress
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import Refused
from streamtable_admin.lag import readable
from streamtable_admin.reading import read_to

OPEN_S = 30.0
COMMIT_S = 9.0


@dataclass
class Run:
    """One run, as far as its records have been read.

    Attributes:
        run: The id of the run.
        visit: The name of the visit.
        argument: The argument that the handler is called with.
        states: The latest record of each partition.
        offsets: The offsets of these records, if they were read and not only written.
        reached: The offset up to which each partition of the topic has been read.
    """

    run: str
    visit: str
    argument: str
    states: dict[int, VisitProgress] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    reached: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def visited(self) -> int:
        return sum(state.visited for state in self.states.values())

    @property
    def open_partitions(self) -> list[int]:
        return [number for number, state in sorted(self.states.items()) if not state.done]

    @property
    def done(self) -> bool:
        return bool(self.states) and not self.open_partitions

    def take(self, batch: RecordBatch) -> bool:
        """Apply a record that concerns this run. Returns whether it does.

        Raises:
            Refused: The run is of another visit, or has another argument.
        """
        found = False
        for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
            state = VisitProgress.decode(value)
            if state is None or state.run != self.run:
                continue
            visit = (key or b"").decode(errors="replace")
            if (visit, state.argument) != (self.visit, self.argument):
                raise Refused(
                    f"run {self.run!r} is of visit {visit!r} with the argument {state.argument!r}: give these, or "
                    "give a new run another id"
                )
            found = True
            self.states[batch.partition] = state
            self.offsets[batch.partition] = offset
        return found


def start(cluster: Cluster, group: str, run: Run, places: list[TopicPartition], *, made_up: bool) -> bool:
    """Start a run, unless it was started before, and read its records.

    Args:
        cluster: The cluster.
        group: The group that the visit belongs to.
        run: The run. Nothing of it was read yet.
        places: All partitions of the visits topic.
        made_up: Whether the run's id is new, so that no records of it exist.

    Returns:
        Whether it was started now.

    Raises:
        Refused: The run's id belongs to another run, or its records in some partitions were deleted.
        StreamtableError: Kafka failed. The call can be repeated.
    """
    with closing(cluster.kafka.transactional_producer(f"{group}.streamtable-cli-visit")) as outbox:
        outbox.open(OPEN_S)
        marks = cluster.admin.watermarks(places)
        starts = {place: mark.high if made_up else mark.low for place, mark in marks.items()}
        ends = {place: mark.high for place, mark in marks.items()}
        for batch in read_to(cluster, starts, ends, complete=True, reached=run.reached):
            run.take(batch)
        if gone := run.states and sorted({place.partition for place in places} - run.states.keys()):
            raise Refused(
                f"the topic has no record of run {run.run!r} in partitions {', '.join(map(str, gone))} any more: whether their "
                "rows were visited is not known. Give a new run another id"
            )
        if run.states:
            return False
        first = VisitProgress(run.run, run.argument)
        outbox.begin()
        try:
            for place in places:
                outbox.produce(
                    place.topic, run.visit.encode(), first.encode(), partition=place.partition, tracked=True
                )
            outbox.flush(COMMIT_S)
        except StreamtableError:
            outbox.abort(COMMIT_S)
            raise
        outbox.commit(COMMIT_S)
    run.states = {place.partition: first for place in places}
    return True


def follow_run(run: Run, batches: Iterable[RecordBatch | None]) -> Iterator[bool]:
    """Read records until the run is done. Yields whether any has advanced the run."""
    for batch in batches:
        yield batch is not None and run.take(batch)
        if run.done:
            return


def rows_at_most(cluster: Cluster, table: str) -> int:
    """Return an upper bound for the rows of a table with one query: overwritten and deleted ones count too."""
    partitions = cluster.admin.topic_partitions().get(table, 0)
    places = [TopicPartition(table, number) for number in range(partitions)]
    return sum(mark.high - mark.low for mark in readable(cluster.admin, places).values())


def states_document(run: Run) -> Mapping[str, object]:
    return {
        "run": run.run,
        "visit": run.visit,
        "argument": run.argument,
        "visited": run.visited,
        "done": run.done,
        "partitions": [
            {"partition": number, "visited": state.visited, "done": state.done, "cursor": state.cursor.hex()}
            for number, state in sorted(run.states.items())
        ],
    }
