"""A group that no scenario has, rebuilt and audited by its own handlers, and compared with the group itself on a real Kafka."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from spark.tests.groups import shop
from spark.tests.groups.jobs import Jobs

from streamtable import App, Json, Processor
from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import GroupReplay, program_of

pytestmark = pytest.mark.timeout(600)
GRAPH = "spark.tests.groups.shop:shop"
TABLES = ("table", "open", "timers", "states", "ids")
USERS = [f"user-{number}" for number in range(12)]


def now() -> datetime:
    """The time of the records, which the group has to accept as today's."""
    return datetime.now(UTC)


def source(group: str) -> Source:
    return Source(group, program_of(GRAPH, group))


class Shop:
    """The topics of two versions of the group, and the records sent to them."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self._random = Random(3)
        self._orders: list[tuple[str, dict[str, Any]]] = []
        stage.create("orders", "payments", "reminders")
        for group in ("shop", "shop-v2"):
            stage.create(*(f"{group}-{table}" for table in TABLES), compacted=True)
            stage.create(f"{group}-dead-letters", f"{group}-retry", f"{group}-loop")

    def orders(self, count: int, at: int, *, committed: bool = True) -> None:
        """Send new orders, some that were sent before, and some that cannot be handled."""
        random = self._random
        with self.stage.transaction(committed=committed) as producer:
            for _ in range(count):
                user, number = random.choice(USERS), f"{len(self._orders)}"
                order = {
                    "number": number, "cents": random.randrange(-5, 100), "at": at + random.randrange(2_000),
                    "by": random.choice(USERS),
                }  # fmt: skip
                if self._orders and random.random() < 0.2:
                    user, order = random.choice(self._orders)
                elif committed:
                    self._orders.append((user, order))
                producer.produce("orders", Json().encode(order), user.encode())
            producer.produce("orders", b"{", b"user-1")

    def payments(self, at: int) -> None:
        with self.stage.transaction() as producer:
            for user, order in self._random.sample(self._orders, len(self._orders) // 2):
                payment = {"number": order["number"], "at": at + self._random.randrange(4_000)}
                producer.produce("payments", Json().encode(payment), user.encode())

    @contextmanager
    def working(self, *groups: str) -> Iterator[None]:
        """Runs processors of these groups until all records are handled that are there in the end."""
        processors: list[Processor] = []
        threads: list[threading.Thread] = []
        for group in groups:
            app = App(self.stage.servers, self.stage.folder / "state")
            processors.append(app.processor(shop.shop(group), instance_id=group))
            threads.append(threading.Thread(target=processors[-1].run))
            threads[-1].start()
        try:
            yield
            self.handled(*groups)
        finally:
            for processor, thread in zip(processors, threads, strict=True):
                processor.stop()
                thread.join()

    def handled(self, *groups: str) -> None:
        for group in groups:
            self.stage.wait_handled(group, "orders", "payments")
            self.stage.wait_handled(group, f"{group}-loop")

    def rows(self, group: str, table: str) -> dict[tuple[int, bytes], bytes]:
        rows = {(n, key): value for n, key, value in self.stage.records(f"{group}-{table}")}
        return {key: value for key, value in rows.items() if value is not None}


def test_a_group_is_rebuilt_with_all_its_tables_by_its_own_handlers(jobs: Jobs, stage: Any) -> None:
    made = Shop(stage)
    with made.working("shop"):
        made.orders(40, 1_000)
        made.orders(5, 1_000, committed=False)
        made.handled("shop")
        made.payments(2_000)
    jobs.rebuild("shop-v2", of=source("shop"), now=now)
    for table in ("table", "open", "timers", "states"):
        assert made.rows("shop-v2", table) == made.rows("shop", table), table
    rows = [json.loads(row) for row in made.rows("shop-v2", "table").values()]
    assert sum(row.get("paid", 0) for row in rows) > 10


def test_a_rebuilt_group_is_audited_with_the_loop_of_the_group_that_it_was_rebuilt_from(
    jobs: Jobs, stage: Any
) -> None:
    made = Shop(stage)
    with made.working("shop"):
        made.orders(20, 1_000)
    done = jobs.rebuild("shop-v2", of=source("shop"), now=now)
    with made.working("shop-v2"):
        made.orders(20, 2_000)
    for group in ("shop", "shop-v2"):
        assert stage.records(f"{group}-loop"), group
    report = jobs.audit(source("shop-v2"), earlier=done)
    assert (report.differences, report.keys) == (0, [])


def test_the_loops_of_a_group_and_of_the_group_that_it_was_rebuilt_from_are_replayed_as_one_topic() -> None:
    made = source("shop-v2")
    assert made.program is not None
    names = made.names({"shop-loop", "shop-retry", "shop-v2-retry"})
    sent = {"task": 0, "partition": 0, "ms": 1, "key": b"user-1", "value": b"1", "headers": []}
    rows = [{**sent, "topic": "shop-loop", "offset": 7}, {**sent, "topic": "shop-v2-loop", "offset": 0}]
    found = {name: value for name, *_, value in GroupReplay(made.program, 1, 1.0, names)(rows)}
    assert json.loads(found["table"]) == {"recommended": 2}


@pytest.mark.faults_long("a group works three times on a real Kafka, and four jobs run its handlers")
def test_a_rebuilt_group_goes_on_as_the_group_itself_and_audits_find_what_was_changed(
    jobs: Jobs, stage: Any
) -> None:
    made = Shop(stage)
    with made.working("shop"):
        for at in (1_000, 9_000):
            made.orders(80, at)
            made.orders(10, at, committed=False)
            made.handled("shop")
            made.payments(at + 1_000)
            made.handled("shop")
    report = jobs.audit(source("shop"))
    assert (report.differences, report.keys) == (0, [])
    assert report.events > 200
    assert sum(each.live_rows for each in report.partitions) > 60

    class Crashed(Exception): ...

    def crash(step: str) -> None:
        if step == "written":
            raise Crashed

    with pytest.raises(Crashed):
        jobs.rebuild("shop-v2", crash, of=source("shop"), now=now)
    done = jobs.rebuild("shop-v2", of=source("shop"), now=now)
    assert done.counts["events"] == report.events
    for table in ("table", "open", "timers", "states"):
        assert made.rows("shop-v2", table) == made.rows("shop", table), table
        assert made.rows("shop", table) or table == "states", table
    rows = [json.loads(row) for row in made.rows("shop-v2", "table").values()]
    assert sum(row.get("reminded", 0) for row in rows) > 5
    assert sum(row.get("paid", 0) for row in rows) > 100

    with made.working("shop", "shop-v2"):
        made.orders(60, 14_000)  # many were sent before
        made.handled("shop", "shop-v2")
        made.payments(20_000)
    for table in ("table", "open", "timers"):
        assert made.rows("shop-v2", table) == made.rows("shop", table), table

    (number, key), _ = next(iter(made.rows("shop", "open").items()))
    stage.produce("shop-open", key, b"junk", number)
    with made.working("shop"):
        made.orders(20, 11_000)  # event time stands still: timers due at the very end may not have fired yet
    (wrong,) = jobs.audit(source("shop")).keys
    assert (wrong.table, wrong.difference, wrong.key) == ("open", "different", json.dumps(key.decode()))
    assert wrong.live == b"junk".hex()


def test_a_group_with_a_loop_is_rebuilt_where_it_stands_and_when_it_has_handled_its_loop(
    jobs: Jobs, stage: Any
) -> None:
    made = Shop(stage)
    made.orders(5, 1_000)
    stage.produce("shop-loop", b"user-1", b"1")
    with pytest.raises(RetryLater, match="at work on its loop shop-loop"):
        jobs.rebuild("shop-v2", of=source("shop"))
    with pytest.raises(ConfigurationError, match="at the offsets that it has committed"):
        jobs.rebuild("shop-v2", of=source("shop"), until='{"orders": {"0": 1, "1": 1, "2": 1}}')
