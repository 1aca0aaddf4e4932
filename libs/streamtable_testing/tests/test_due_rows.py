"""Rows that fall due: the handler is called once for each, in the order of their times, also across kills."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream
from streamtable.codec.plain import Json, String
from streamtable.errors import HandlerFailed
from streamtable.flow import Flow, Session, Tumbling, Windowed
from streamtable.graph.due import Due
from streamtable.graph.group import Group, Input, OnError, Output
from streamtable.graph.state import State
from streamtable.handlers.context import Context
from streamtable.handlers.due_rows import DueRows
from streamtable_testing import Tester

ROW: Codec[Any] = Json()
ORDERS = Stream[str, Any]("orders", String(), Json())
FIRED = Stream[str, Any]("fired", String(), Json())


def row_says(key: bytes, data: bytes) -> int | None:
    at: int | None = ROW.decode(data).get("at")
    return at


def key_says(key: bytes, data: bytes) -> int | None:
    assert data == b""
    return int(key.partition(b"@")[2] or b"0") or None


def fire(due: DueRows[str, Any]) -> None:
    for _, key, row in due.rows:
        due.emit(FIRED, key, {"row": row["n"], "at": row.get("at"), "clock": due.watermark_ms})
        if row.get("bad"):
            row["n"] = "changed in place"
            due.fail("bad")
        if follow := row.get("follow"):
            due.table(due.state).put(follow, {"n": 99, "at": row["at"] + 1000})


def state_of(*, keep: float = 0, by_key: bool = False, on_error: OnError = OnError.STOP) -> State[str, Any]:
    when = key_says if by_key else row_says
    due = Due[str, Any](
        when, fire, clock="wall", keep=timedelta(seconds=keep), by_key=by_key, on_error=on_error
    )
    return State("waiting", key=String(), value=Json(), due=due)


def group_of(state: State[str, Any], on_error: OnError = OnError.STOP) -> Group[str, None]:
    def each(ctx: Context[str, None], order: Any) -> None:
        table = ctx.table(state)
        if order.get("delete"):
            table.delete(order["key"])
        else:
            table.put(order["key"], order)
        if order.get("refused"):
            ctx.fail("refused")

    return Group("due", Input(ORDERS, each, on_error=on_error), Output(FIRED), state)


class Waiting:
    """A running group whose rows are due this many seconds after the test began."""

    def __init__(self, tester: Tester, group: Group[str, None], **given: Any) -> None:
        self.tester = tester
        self.group = group
        self.began_ms = int(tester.clock.now() * 1000)
        tester.run(group, **given)

    def put(self, n: int, seconds: float | None, key: str | None = None, **more: Any) -> None:
        self.put_many([(n, seconds)], key, **more)

    def put_many(self, rows: Iterable[tuple[int, float | None]], key: str | None = None, **more: Any) -> None:
        orders = []
        for n, seconds in rows:
            at = None if seconds is None else self.began_ms + int(seconds * 1000)
            name = key or (f"k{n}@{at or ''}" if self.group.states[0].due.by_key else f"k{n}")  # type: ignore[union-attr]
            orders.append(("a", {"key": name, "n": n, "at": at, **more}))
        self.tester.emit_many(ORDERS, orders)

    @property
    def fired(self) -> list[int]:
        return [record.value["row"] for record in self.tester.records(FIRED) if record.value]

    @property
    def left(self) -> int:
        return len(self.tester.table(self.group, self.group.states[0]))


@pytest.mark.parametrize("by_key", [False, True], ids=["the row says", "the key says"])
def test_rows_fire_once_in_the_order_of_their_times(by_key: bool, tester: Tester) -> None:  # noqa: FBT001 - a parameter
    waiting = Waiting(tester, group_of(state_of(by_key=by_key)))
    waiting.put_many([(1, 30), (2, 10), (3, 20), (4, 20), (5, None)])
    assert waiting.fired == []
    tester.advance(15)
    assert waiting.fired == [2]
    tester.advance(10)
    assert waiting.fired == [2, 3, 4]
    waiting.put(6, 1)  # its time is over already
    assert waiting.fired == [2, 3, 4, 6]
    tester.advance(100)
    assert waiting.fired == [2, 3, 4, 6, 1]
    assert waiting.left == 1


def test_what_fires_between_records_is_in_order_with_what_is_not_committed(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of()))
    waiting.put_many([(1, 10), (3, 30), (5, 50)])
    tester.advance(5)
    waiting.put_many([(2, 20), (4, 40)])
    tester.clock.advance(100)
    waiting.put_many([(0, 7), (6, 60)])
    assert waiting.fired == [0, 1, 2, 3, 4, 5, 6]


def test_a_row_that_is_written_again_is_due_when_the_last_one_says(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of()))
    waiting.put(1, 10, key="x")
    waiting.put(2, 30, key="x")
    waiting.put(3, 10, key="y")
    waiting.put(4, None, key="y")
    waiting.put(5, 10, key="z")
    waiting.put(6, 10, key="z", delete=True)
    tester.advance(20)
    assert waiting.fired == []
    tester.advance(20)
    assert waiting.fired == [2]


def test_a_handler_may_write_rows_that_fall_due(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of()))
    waiting.put(1, 10, follow="next")
    tester.advance(10.5)
    assert waiting.fired == [1]
    tester.advance(1)
    assert waiting.fired == [1, 99]
    assert waiting.left == 0


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False], ids=["disk kept", "disk lost"])
def test_rows_fall_due_in_event_time_whenever_the_process_was_killed(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    tester: Tester,
) -> None:
    due = Due[str, Any](row_says, fire, keep=timedelta(seconds=10))
    state = State("waiting", key=String(), value=Json(), due=due)
    group = Group[str, None](
        "due",
        Input(ORDERS, lambda ctx, order: ctx.table(state).put(order["key"], order)),
        Output(FIRED),
        state,
    )
    waiting = Waiting(tester, group)

    def put(n: int, seconds: float, at: float) -> None:
        """Row `n` is due this many seconds after the beginning; its record is of another time."""
        order = {"key": f"k{n}", "n": n, "at": waiting.began_ms + int(seconds * 1000)}
        tester.emit(ORDERS, "a", order, timestamp_ms=waiting.began_ms + int(at * 1000))

    for n, seconds in ((1, 10), (2, 20), (3, 30)):
        put(n, seconds, 0)
    put(4, 40, 9.999)
    assert waiting.fired == []
    tester.crash(group, at=step)
    put(5, 15, 21)
    tester.start(group, disk=disk)
    tester.advance(20)  # less than it takes an input to be idle
    assert waiting.fired == [1, 5, 2]
    put(6, 50, 25)
    assert (waiting.fired, waiting.left) == ([1, 5, 2], 4)  # the rows of seconds 10 and 15 are over
    tester.advance(100)  # the input is idle
    assert waiting.fired == [1, 5, 2, 3, 4, 6]
    tester.crash(group)
    tester.start(group, disk=disk)
    tester.advance(100)
    assert waiting.fired == [1, 5, 2, 3, 4, 6]
    assert waiting.left == 0


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False], ids=["disk kept", "disk lost"])
@pytest.mark.parametrize("keep", [0, 3600])
def test_each_row_fires_once_whenever_the_process_was_killed(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    keep: int,
    tester: Tester,
) -> None:
    waiting = Waiting(tester, group_of(state_of(keep=keep)))
    waiting.put_many([(1, 30), (2, 10), (3, 20)])
    tester.advance(15)
    tester.crash(waiting.group, at=step)  # in the commit of what fires, without any record
    tester.advance(10)
    tester.start(waiting.group, disk=disk)
    tester.advance(60)
    assert waiting.fired == [2, 3, 1]
    tester.crash(waiting.group)
    tester.start(waiting.group, disk=disk)
    tester.advance(60)
    assert waiting.fired == [2, 3, 1]
    assert waiting.left == (3 if keep else 0)


def test_rows_are_kept_for_as_long_as_they_are_to_be(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of(keep=100)))
    waiting.put_many([(1, 10), (2, 20)])
    tester.advance(60)
    assert (waiting.fired, waiting.left) == ([1, 2], 2)
    tester.crash(waiting.group)
    tester.start(waiting.group, disk=False)
    tester.advance(52)
    assert (waiting.fired, waiting.left) == ([1, 2], 1)
    tester.advance(60)
    assert (waiting.fired, waiting.left) == ([1, 2], 0)
    tester.kafka.compact("due-waiting")
    waiting.put(3, 1)  # older than the rows that are kept
    assert (waiting.fired, waiting.left) == ([1, 2, 3], 0)


@pytest.mark.parametrize("by_key", [False, True], ids=["as the row says", "as the key says"])
def test_rows_that_were_kept_are_deleted_and_fire_no_second_time_where_none_are_kept_any_more(
    by_key: bool,  # noqa: FBT001 - a parameter
    tester: Tester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamtable.engine.firing.runner._ROWS_AT_ONCE_MAX", 2)
    monkeypatch.setattr("streamtable.engine.firing.runner._SLICE_SECONDS", 0.0)
    waiting = Waiting(tester, group_of(state_of(keep=1000, by_key=by_key)))
    waiting.put_many([(n, n) for n in range(1, 8)])
    tester.advance(30)
    tester.stop(waiting.group)
    waiting.group = group_of(state_of(by_key=by_key))
    tester.start(waiting.group)
    tester.crash(waiting.group, at="store-written")
    waiting.put_many([(8, 0.5), (9, 31), (10, 3600)])
    tester.start(waiting.group)
    tester.advance(10)
    assert waiting.fired == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert waiting.left == 1
    waiting.put(11, 0.5)
    tester.advance(10)
    assert (waiting.fired[9:], waiting.left) == ([11], 1)


def test_a_kept_row_that_is_written_after_its_time_fires_in_the_same_commit(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of(keep=1000)))
    waiting.put_many([(1, 10), (2, 20)])
    tester.advance(30)
    tester.crash(waiting.group, at="store-written")
    waiting.put(3, 15)
    tester.start(waiting.group, disk=False)
    tester.advance(60)
    assert waiting.fired == [1, 2, 3]


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_a_row_whose_handler_fails_fails_alone(on_error: OnError, tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of(on_error=on_error)))
    waiting.put_many([(1, 10), (2, 20)])
    waiting.put(3, 15, bad=True)
    tester.advance(30)
    assert waiting.fired == [1, 2]
    assert waiting.left == 0
    letters = tester.dead_letters(waiting.group)
    assert len(letters) == (1 if on_error is OnError.DEAD_LETTER else 0)
    for letter in letters:
        assert letter.key == b"k3"
        assert ROW.decode(letter.value or b"")["n"] == 3
        assert letter.origin.topic == "due-waiting"
        assert letter.origin.timestamp_ms == waiting.began_ms + 15_000


def test_a_row_that_stops_the_process_stops_it_again(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of()))
    waiting.put_many([(1, 10), (2, 20)])
    waiting.put(3, 15, bad=True)
    with pytest.raises(HandlerFailed, match="rows of state 'waiting'"):
        tester.advance(30)
    assert waiting.fired == [1]
    with pytest.raises(HandlerFailed, match="rows of state 'waiting'"):
        tester.start(waiting.group)
    assert waiting.fired == [1]


def test_a_record_that_fails_sets_nothing(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of(), OnError.SKIP))
    waiting.put(1, 10)
    waiting.put(2, 20, key="x")
    for n in (3, 4):  # in a hurry, and carefully
        waiting.put(n, 15, refused=True)
        waiting.put(n, 15, key="x", refused=True)
    tester.advance(60)
    assert waiting.fired == [1, 2]


def test_many_rows_fire_in_slices_each_with_its_commit(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.firing.runner._ROWS_OF_SLICE_MAX", 300)
    waiting = Waiting(tester, group_of(state_of(by_key=True)))
    waiting.put_many([(n, 10 + n % 7) for n in range(2000)])
    tester.advance(30)
    assert sorted(waiting.fired) == list(range(2000))
    assert waiting.left == 0
    assert [n % 7 for n in waiting.fired] == sorted(n % 7 for n in range(2000))
    commits = {
        record.offset()
        for _, record in tester.kafka.records("due-states")
        if record.key() == b"waiting\0fired"
    }
    assert len(commits) > 2


def test_the_next_owner_of_a_partition_fires_what_is_left(tester: Tester) -> None:
    waiting = Waiting(tester, group_of(state_of(keep=60)), partitions=3, standby=True, members=2)
    for n in range(60):
        tester.emit(ORDERS, f"k{n}", {"key": f"k{n}", "n": n, "at": waiting.began_ms + 1000 * n})
    tester.advance(20)
    tester.crash(waiting.group)
    tester.advance(60)
    tester.start(waiting.group, disk=False)
    tester.join(waiting.group)
    tester.advance(200)
    assert sorted(waiting.fired) == list(range(60))
    assert waiting.left == 0


SECOND, DAY_MS = timedelta(seconds=1), 86_400_000
THEN_MS = 1_699_000_000_000
TIMES = Stream[str, Any]("times", String(), Json())


def test_a_session_that_gets_longer_before_all_is_over_ends_the_search_for_rows_that_are_over() -> None:
    flow = Flow("f")
    clicks = flow.stream(TIMES, time=lambda at: at).group_by_key()
    visits = clicks.window(Session(SECOND, grace=timedelta(0))).count("n")
    with Tester(commit_on_request=True) as tester:
        tester.run(flow)
        tester.emit(TIMES, "k", THEN_MS + 10)
        tester.commit()
        tester.emit_many(TIMES, [("k", THEN_MS), ("k", THEN_MS + 2 * DAY_MS)])
        tester.commit()
        later = THEN_MS + 2 * DAY_MS
        tester.emit(TIMES, "k", later)
        tester.commit()
        assert tester.table(visits.table) == {Windowed("k", later, later): 2}


def test_a_window_whose_row_was_deleted_before_all_is_over_ends_the_search_for_rows_that_are_over() -> None:
    flow = Flow("f")
    windows = flow.stream(TIMES, time=abs).group_by_key().window(Tumbling(SECOND, grace=timedelta(0)))
    last = windows.aggregate("last", int, lambda _, at: max(at, 0) or None, value=Json())
    with Tester(commit_on_request=True) as tester:
        tester.run(flow)
        tester.emit(TIMES, "k", THEN_MS)
        tester.commit()
        tester.emit_many(TIMES, [("k", -THEN_MS - 1), ("k", THEN_MS + 2 * DAY_MS)])
        tester.commit()
        assert list(tester.table(last.table).values()) == [THEN_MS + 2 * DAY_MS]
