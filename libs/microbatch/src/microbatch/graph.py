"""The graph of a micro-batch, with the tasks that run it.

PIECES = Rows("pieces", value=Avro(FOLLOWER_PIECE))
AUTHORS = MicroBatch("authors", inputs=[TWEETS, FOLLOWS], process=fold, outputs=[FACTS], rows=[PIECES])
"""

from microbatch.declaration import DeclaredBatch
from microbatch.embedded import EmbeddedTasks
from microbatch.task import Surroundings
from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint


class MicroBatch(DeclaredBatch):
    """A group whose records are handled by `process(batch, send)`, one partition's batch at a time.

    A batch has records of the same partition of all inputs. Its rows, its output and its input offsets are committed
    atomically. `BatchProcessor` runs it; the `Tester` runs it with the disk in memory.

    Its rows are kept in the compacted topic `<name>-table` and in RocksDB beside the process, unless the processor is
    given a central store.

    Args:
        name: The name of the consumer group. Its topics are `<name>-retry`, `<name>-dead-letters` and, if it keeps
            rows, `<name>-table`.
        inputs: The inputs, with the same keys and the same number of partitions. A record without key or value is a
            dead letter.
        process: Called with each batch. It may raise `RetryLater` to get the same records again later.
        outputs: The streams that it may send to.
        rows: The kinds of rows that it may keep, per partition.
        max_records: The number of records that completes a batch.
        max_bytes: The bytes of keys and values that complete a batch.
        max_wait: The seconds since the batch's first record that complete it.
        start: The offset where a new group starts.
        on_error: The reaction if `process` raises an error, or its rows or output cannot be encoded. Except with
            `STOP`, the batch is halved until the record at fault is isolated.

    Raises:
        GraphError: The arguments contradict each other.
    """

    def custom_tasks(self, clock: Clock, failpoint: Failpoint) -> EmbeddedTasks:
        """Return the factory of its tasks with embedded rows, as in a process without a central store."""
        return EmbeddedTasks(Surroundings(self, clock, failpoint))

    def __repr__(self) -> str:
        return f"MicroBatch({self.name!r})"
