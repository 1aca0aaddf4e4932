"""`TransactionViews`: tables of a database in memory, which move together from one source transaction to the next."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

import msgspec
import structlog

from streamtable.base.closing import Closing
from streamtable.base.message import with_prefixes
from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import Log, TableReader
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import (
    ConfigurationError,
    DeserializationError,
    NotReady,
    RetryLater,
    StreamtableError,
)
from streamtable_capture.capture import Capture
from streamtable_capture.connect_key import ConnectKey
from streamtable_capture.registry import RegistryFraming, RegistryRecords
from streamtable_capture.rows import UNREADABLE
from streamtable_capture.schemas import Schemas
from streamtable_capture.transactions import ReadChange, TableAtOnce, TransactionMark, TransactionOrder

log = structlog.get_logger()
R = TypeVar("R")

_POLL_RECORDS, _POLL_SECONDS, _RETRY_SECONDS = 5_000, 0.1, 0.5
_NEW_KEY = "__debezium.newkey"


class HasKafka(Protocol):
    """The part of an `App` that is used."""

    @property
    def kafka(self) -> Log: ...


@dataclass(frozen=True)
class WholeTables:
    """Tables at one transaction.

    Attributes:
        transaction: The id of the transaction, as the connector writes it; None before the first.
        tables: The rows by key, by the names of the groups.
    """

    transaction: str | None
    tables: Mapping[str, Mapping[Any, Any]]

    def __getitem__(self, capture: Capture[Any, Any]) -> Mapping[Any, Any]:
        """Return the rows of a captured table."""
        return self.tables[capture.name]


class TransactionViews(Closing):
    """Views of captured tables that show all of a source transaction or nothing of it.

        with TransactionViews(app, [ACCOUNTS, PAYMENTS], transactions="bank.transaction") as views:
            views.wait_ready()
            with views.at_once() as tables:
                total = sum(row.amount for row in tables[ACCOUNTS].values())

    The connector must write the metadata of transactions (`provide.transaction.metadata=true`), to a topic with one partition. All
    rows are in memory. They are made of the connector's topics from their beginning, so these must keep their records
    (`retention.ms=-1`, not compacted).

    Args:
        app: The App, or anything else with its `kafka`.
        captures: The captured tables. Their groups need not run.
        transactions: The connector's topic of transactions: `<topic.prefix>.transaction`.
        incomplete_after: After these seconds a transaction with missing changes is logged. The views stay before it.

    Raises:
        ConfigurationError: There is no table, or one twice.
    """

    def __init__(
        self,
        app: HasKafka,
        captures: Sequence[Capture[Any, Any]],
        *,
        transactions: str,
        incomplete_after: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._here = OwnProcess(f"the views of {transactions!r}")
        self._sources = {each.source.name: each for each in captures}
        self._codecs = {name: each.changes_codec() for name, each in self._sources.items()}
        self._kafka, self._marks = app.kafka, transactions
        prefix = f"{transactions.rpartition('.')[0]}."
        # Topics are named <prefix>.<schema>.<table>. Where a transformation names them, the first change says the table.
        self._names = {name: codec.table or name.removeprefix(prefix) for name, codec in self._codecs.items()}
        tables = {self._names[name]: TableAtOnce(each.rows) for name, each in self._sources.items()}
        if not captures or len(tables) < len(captures):
            raise ConfigurationError("TransactionViews: give captures, each of another table and topic")
        rows = {each.name: table.rows for each, table in zip(captures, tables.values(), strict=True)}
        self._shown = MappingProxyType({name: MappingProxyType(each) for name, each in rows.items()})
        first = next(iter(self._codecs.values()))
        self._decode_mark = _mark_decoder(first.schemas)
        headers = {name: codec.prefix_header for name, codec in self._codecs.items()}
        self._headers = {**headers, transactions: first.prefix_header}
        self._order = TransactionOrder(tables)
        self._incomplete_after, self._clock = incomplete_after, clock
        self._warned_at = 0.0
        self._lock = threading.Condition()
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transaction-views", daemon=True)

    # ---- for readers -----------------------------------------------------------------------------------------------

    @contextmanager
    def at_once(self) -> Iterator[WholeTables]:
        """Yield all tables at one transaction. The next one waits until the block is left, so keep it short.

        Raises:
            NotReady: The topics are not read to the end that they had at the start.
            UsedAfterFork: The process was forked after the views were made.
            StreamtableError: The views have stopped: a record cannot be read, or a change lacks values.
        """
        self._here.check()
        with self._lock:
            self._check()
            yield WholeTables(self._order.applied, self._shown)

    @property
    def ready(self) -> bool:
        """Whether the tables can be read. Raises `UsedAfterFork` in a forked process."""
        self._here.check()
        return self._order.caught_up and self._failure is None

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until the tables can be read. Raises as `at_once`."""
        self._wait(lambda: self._order.caught_up, timeout)

    def wait_steps(self, steps: int, timeout: float = 60.0) -> int:
        """Wait until so many transactions have been applied. Returns how many have been. Raises as `at_once`."""
        self._wait(lambda: self._order.steps >= steps, timeout)
        return self._order.steps

    @property
    def incomplete(self) -> Mapping[str, int]:
        """The number of changes that the next transaction lacks, by table; empty if it lacks none."""
        with self._lock:
            return self._order.missing()

    @property
    def age_seconds(self) -> float:
        """The seconds since the end of the oldest incomplete transaction was read; 0: the views have all that have ended."""
        with self._lock:
            waited_for = self._order.next_ended
            return 0.0 if waited_for is None else self._clock() - waited_for[1]

    def start(self) -> None:
        """Begin to read, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def _wait(self, reached: Callable[[], bool], timeout: float) -> None:
        self._here.check()
        with self._lock:
            self._lock.wait_for(lambda: reached() or self._failure is not None, timeout)
            self._check()

    def _check(self) -> None:
        if isinstance(self._failure, StreamtableError):
            raise self._failure
        if self._failure is not None:
            raise StreamtableError(f"the views have stopped: {self._failure!r}") from self._failure
        if not self._order.caught_up:
            raise NotReady("the views are being loaded: wait_ready() waits until they are")

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with closing(self._kafka.table_reader("transaction-views")) as reader:
                self._follow(reader)
        except Exception as error:  # noqa: BLE001 - whatever ends the thread, its rows must not be served as present ones
            with self._lock:
                self._failure = error
                self._lock.notify_all()
            log.warning("transaction views stopped", error=str(error), kind=type(error).__name__)

    def _follow(self, reader: TableReader) -> None:
        ends = self._again(self._assigned, reader)
        while not self._stopping.is_set():
            for batch in self._again(reader.poll, _POLL_RECORDS, _POLL_SECONDS):
                self._take(batch)
            if self._order.caught_up:
                self._step()
            elif all(reader.position(place) >= end for place, end in ends.items()):
                with self._lock:
                    self._order.catch_up()
                    self._warned_at = self._clock()
                    self._step()  # all of them, before the first reader
                    self._lock.notify_all()

    def _again(self, ask: Callable[..., R], *given: Any) -> R:
        """Return what a call returns, once Kafka or the registry answers. Raises `RetryLater` if it is closed before."""
        waits = False
        while True:
            try:
                return ask(*given)
            except RetryLater as error:
                if not waits:
                    log.warning("transaction views wait", error=str(error))
                waits = True
                if self._stopping.wait(_RETRY_SECONDS):
                    raise

    def _assigned(self, reader: TableReader) -> Mapping[TopicPartition, int]:
        """Begin to read all topics. Returns their ends. Raises `ConfigurationError`, `RetryLater`."""
        names = [*self._sources, self._marks]
        with closing(self._kafka.cluster()) as cluster:
            found = cluster.topics(names)
            if missing := sorted(set(names) - found.keys()):
                raise ConfigurationError(f"there is no topic {', '.join(missing)}: start the connector first")
            if found[self._marks].partitions > 1:
                raise ConfigurationError(
                    f"{self._marks!r} has {found[self._marks].partitions} partitions: transactions have an order in one only. "
                    "Create it with one partition before the connector starts"
                )
            places = [
                TopicPartition(name, n) for name, topic in found.items() for n in range(topic.partitions)
            ]
            ends, marks = cluster.stable_ends(places), cluster.watermarks(places)
        reader.assign({place: marks[place].low for place in places})
        return ends

    def _step(self) -> None:
        """Apply the transactions that have come, each in a step of its own; say which one does not come."""
        while True:
            with self._lock:
                if not self._order.step():
                    break
                self._lock.notify_all()
        if self._order.next_ended is None:
            return
        (mark, ended_at), now = self._order.next_ended, self._clock()
        if now - max(ended_at, self._warned_at) > self._incomplete_after:
            self._warned_at = now
            log.warning("transaction incomplete", transaction=mark.id, missing=dict(self._order.missing()))

    def _take(self, batch: RecordBatch) -> None:
        """Take records. Raises `DeserializationError` with their place."""
        batch = with_prefixes(batch, self._headers[batch.topic])
        for index, value in enumerate(batch.values):
            if value is None:
                continue  # the tombstone behind a deletion
            try:
                if batch.topic == self._marks:
                    mark = self._again(self._decode_mark, value)
                    with self._lock:
                        self._order.ended(mark, self._clock())
                else:
                    read = self._again(self._read, batch, index, value)
                    with self._lock:
                        self._order.read(self._names[batch.topic], read)
            except StreamtableError as error:
                error.at(batch.topic, batch.partition, batch.offsets[index])
                raise

    def _read(self, batch: RecordBatch, index: int, value: bytes) -> ReadChange:
        change, key = self._codecs[batch.topic].decode(value), batch.keys[index]
        codec = self._sources[batch.topic].source.key
        if key is None and change.op != "t":
            raise DeserializationError("the record has no key: the table has no primary key")
        new = dict(batch.headers(index)).get(_NEW_KEY)
        decode = codec.decode_header if isinstance(codec, ConnectKey) else codec.decode
        return ReadChange(
            None if key is None else codec.decode(key), change, None if new is None else decode(new)
        )


def _mark_decoder(schemas: bool | RegistryFraming) -> Callable[[bytes], TransactionMark]:  # noqa: FBT001 - as the codec has it
    """Return the function that reads the begin or the end of a transaction. It raises `DeserializationError`."""
    decoder = msgspec.json.Decoder(TransactionMark)
    split = Schemas(lambda _: None).split
    registered = None if isinstance(schemas, bool) else RegistryRecords(schemas, lambda _: {}, flattened=True)

    def decode(data: bytes) -> TransactionMark:
        try:
            if registered is not None:
                return msgspec.convert(registered.read(data)[0], TransactionMark)
            return decoder.decode(split(data)[1] if schemas else data)
        except UNREADABLE as error:
            raise DeserializationError(f"no begin or end of a transaction: {error}") from error

    return decode
