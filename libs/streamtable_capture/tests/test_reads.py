"""Reads of whole transactions, beside reads of ordinary views, while amounts move from one table to another."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec import Struct

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.topics import create_topics
from localkafka.waiting import Deadline, wait_until
from streamtable import App, Stream
from streamtable_capture import (
    Capture,
    ConnectKey,
    DatabaseChange,
    DatabaseSource,
    Debezium,
    TransactionViews,
)
from streamtable_capture.change import SourceTransaction
from streamtable_capture.transactions import TableCount, TransactionMark

READS, TRANSACTIONS = 10_000, 50
"""At least as many reads, at as many different transactions."""
PARTITIONS, ACCOUNTS, AT_ONCE = 2, 4, 20
TABLES = ("paid", "owed")
KEY = ConnectKey(id=int)


class Account(Struct):
    id: int
    amount: int


class Bank:
    """Two tables whose amounts add up to nothing after every transaction, as a connector writes their changes.

    Each transaction changes a row of both tables. The changes of several transactions come table by table, as a connector's
    batches to different partitions may.
    """

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.marks = f"{prefix}.transaction"
        self.groups = [
            Capture(f"{prefix}-{each}", Stream(f"{prefix}.public.{each}", KEY, Debezium(Account)))
            for each in TABLES
        ]
        raw = [NewTopic(group.source.name, PARTITIONS) for group in self.groups]
        create_topics(
            AdminClient({"bootstrap.servers": broker.bootstrap_servers}), [*raw, NewTopic(self.marks, 1)]
        )
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "partitioner": "murmur2_random"}
        )
        self._rows: dict[str, dict[int, int]] = {each: {} for each in TABLES}
        self._random, self._lsn, self._numbers = random.Random(5), count(100), count(1)

    def transact(self) -> None:
        """Write the next transactions."""
        events: dict[str, list[tuple[bytes, bytes]]] = {each: [] for each in TABLES}
        marks = [self._transaction(events) for _ in range(AT_ONCE)]
        for table, group in zip(TABLES, self.groups, strict=True):
            for key, value in events[table]:
                self._producer.produce(group.source.name, value, key)
            self._producer.flush()
        for mark in marks:
            self._producer.produce(self.marks, mark, b"{}")
        self._producer.flush()

    def close(self) -> None:
        """Close the connections to the broker, which the fixture stops."""
        del self._producer

    def _transaction(self, events: dict[str, list[tuple[bytes, bytes]]]) -> bytes:
        number, moved, key = next(self._numbers), self._random.randint(1, 9), self._random.randrange(ACCOUNTS)
        for order, (table, rows, sign) in enumerate(
            zip(TABLES, self._rows.values(), (1, -1), strict=True), 1
        ):
            rows[key] = rows.get(key, 0) + sign * moved
            source = DatabaseSource(lsn=next(self._lsn), schema="public", table=table)
            place = SourceTransaction(f"{number}:{source.lsn}", order, 1)
            change = DatabaseChange(op="u", after=Account(key, rows[key]), source=source, transaction=place)
            events[table].append((KEY.encode(key), Debezium(Account).encode(change)))
        counts = [TableCount(f"public.{table}", 1) for table in TABLES]
        return msgspec.json.encode(
            TransactionMark("END", f"{number}:{next(self._lsn)}", data_collections=counts)
        )


@contextmanager
def transacting(bank: Bank) -> Iterator[None]:
    """Write transactions meanwhile."""
    stopping = threading.Event()

    def write() -> None:
        while not stopping.wait(0.005):
            bank.transact()
        bank.close()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()


def total(rows: Any) -> int:
    return sum(row.amount for row in rows.values())


def test_ten_thousand_reads_of_whole_transactions_see_no_transaction_in_part(
    broker: Broker, topics: Topics
) -> None:
    bank = Bank(broker, topics.prefix)
    seen, wrong, reads, deadline = set[str | None](), [], 0, Deadline(120)
    with (
        App(broker.bootstrap_servers, state_dir="unused") as app,
        TransactionViews(app, bank.groups, transactions=bank.marks) as views,
        transacting(bank),
    ):
        views.wait_ready()
        views.wait_steps(1)
        while reads < READS or len(seen) < TRANSACTIONS:
            assert not deadline.passed(), (reads, len(seen))
            reads += 1
            with views.at_once() as tables:
                paid, owed = (total(tables[group]) for group in bank.groups)
                seen.add(tables.transaction)
            if paid + owed:
                wrong.append((paid, owed))
            time.sleep(0.0001)  # the views go on
    assert wrong == []


def test_reads_of_ordinary_views_of_the_same_tables_see_parts_of_transactions(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    bank = Bank(broker, topics.prefix)
    with App(broker.bootstrap_servers, state_dir=tmp_path) as app:
        app.create_topics(*bank.groups, partitions=PARTITIONS)
        processors = [app.processor(group, commit_interval=0.05) for group in bank.groups]
        running = [threading.Thread(target=each.run, daemon=True) for each in processors]
        for each in running:
            each.start()
        shown = [app.view(group.table) for group in bank.groups]

        def in_part() -> bool:
            paid, owed = (total(view.get_many(range(ACCOUNTS))) for view in shown)
            return paid + owed != 0

        try:
            with transacting(bank):
                wait_until(lambda: all(view.ready for view in shown), 60, "the views")
                wait_until(in_part, 60, "a read of a transaction in part", every=0.001)
        finally:
            for processor in processors:
                processor.stop()
            for each in running:
                each.join()
