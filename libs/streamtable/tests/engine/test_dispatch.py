"""Joined tables, their changes, loops and visits, as one partition handles them; inputs are in test_task."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtable.base.deadletter import OutputRecord
from streamtable.base.ports import Decoded
from streamtable.base.topics import Stream, Table
from streamtable.base.types import RecordBatch
from streamtable.codec.plain import Json, Long, String
from streamtable.engine.records import dispatch
from streamtable.engine.task import Task
from streamtable.errors import GraphError, HandlerFailed, RetryLater, RewindNeeded
from streamtable.graph.group import Changes, Group, Input, Join, Lookup, Loop, OnError, Output, Persist, Visit
from streamtable.graph.row_change import RowChange
from streamtable.graph.visiting import VisitProgress
from streamtable.handlers.context import Context
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import TablePosition

EVENTS = Stream("events", String(), String())
LOOP = Stream("g-loop", String(), String())
USERS = Table("users", String(), Long())
CITIES = Table("cities", String(), String())
GIVE_UP = [OnError.DEAD_LETTER, OnError.SKIP]
Make = Callable[..., RecordBatch]
MakeTask = Callable[..., Task]
Rows = Sequence[tuple[bytes | None, bytes | None]]


def long(value: int) -> bytes:
    return Long().encode(value)


def commit(task: Task) -> list[OutputRecord]:
    """As the checkpoint does, if Kafka accepts everything."""
    work = task.work()
    outputs = list(work.outputs)
    named = {name: at + len(work.named.get(name, ())) for name, at in task.named_positions.items()}
    task.committed(work, TablePosition(task.changelog_position + len(work.changes), exact=True, tables=named))
    return outputs


def work_through(task: Task, *batches: RecordBatch) -> list[OutputRecord]:
    """Process and commit; after a rewind, read the undone records again."""
    outputs: list[OutputRecord] = []
    for records in filter(len, batches):
        for _ in range(2 * len(records) + 2):
            try:
                task.process(records)
                outputs += commit(task)
                break
            except RewindNeeded:
                task.rewind()
        else:
            pytest.fail("it goes round in circles")
    return outputs


def rows_of(task: Task, table: str = "g-table") -> dict[str, Any]:
    with task.stores[table].scan() as rows:
        return {key.decode(): value for key, value in rows}


# ---- joined tables -------------------------------------------------------------------------------------------------


def joining(*edges: Any, seen: list[Any]) -> Group[str, int]:
    def look(ctx: Context[str, int], event: str) -> None:
        seen.append((event, ctx.join(USERS)))

    return Group("g", Input(EVENTS, look), Join(USERS), *edges)


def test_a_record_is_joined_with_the_row_that_has_come_before_it(make_task: MakeTask, batch: Make) -> None:
    seen: list[Any] = []
    task = make_task(joining(seen=seen))
    for number, (topic, value) in enumerate(
        [("events", b"0"), ("users", long(7)), ("events", b"1"), ("users", None), ("events", b"2")]
    ):
        task.process(batch(topic, [(b"a", value)], first=number))
    assert seen == [("0", None), ("1", 7), ("2", None)]


def test_a_joined_row_is_in_its_store_after_the_commit_and_not_before(
    make_task: MakeTask, batch: Make
) -> None:
    task = make_task(joining(seen=[]))
    task.process(batch("users", [(b"a", long(1)), (b"b", long(2)), (b"a", None)]))
    assert rows_of(task, "users") == {}
    commit(task)
    assert rows_of(task, "users") == {"b": long(2)}


def test_a_rewind_takes_the_joined_rows_back_as_well(make_task: MakeTask, batch: Make) -> None:
    seen: list[Any] = []
    task = make_task(joining(seen=seen))
    work_through(task, batch("users", [(b"a", long(1))]))
    task.process(batch("users", [(b"a", long(2))], first=1))
    assert task.rewind()["users"] == 1
    task.process(batch("events", [(b"a", b"x")]))
    assert seen == [("x", 1)]


def test_each_joined_table_has_a_store_a_codec_and_an_offset_of_its_own(
    make_task: MakeTask, batch: Make
) -> None:
    seen: list[Any] = []

    def look(ctx: Context[str, int], event: str) -> None:
        seen.append((ctx.join(USERS), ctx.join(CITIES)))

    task = make_task(Group[str, int]("g", Input(EVENTS, look), Join(USERS), Join(CITIES), Persist(Long())))
    work_through(task, batch("users", [(b"a", long(1))]), batch("cities", [(b"a", b"Rome"), (b"a", b"Oslo")]))
    work_through(task, batch("events", [(b"a", b"x")]))
    assert seen == [(1, "Oslo")]
    assert task.committed_offsets == {"events": 1, "users": 1, "cities": 2, "g-retry": 0}


def test_a_joined_row_that_cannot_be_decoded_fails_the_record_that_asks_for_it_and_no_other(
    make_task: MakeTask, batch: Make
) -> None:
    def look(ctx: Context[str, int], event: str) -> None:
        ctx.set(ctx.join(USERS) or 0)

    task = make_task(
        Group("g", Input(EVENTS, look, on_error=OnError.DEAD_LETTER), Join(USERS), Persist(Long()))
    )
    work_through(task, batch("users", [(b"a", b"no long"), (b"b", long(2)), (None, long(3))]))
    (letter,) = work_through(task, batch("events", [(b"a", b"x"), (b"b", b"x")]))
    assert letter.key == b"a"
    assert b"joined table 'users' for key b'a' cannot be decoded" in (
        dict(letter.headers)["streamtable-message"] or b""
    )
    assert rows_of(task) == {"b": long(2)}


def test_what_is_neither_joined_nor_looked_up_is_a_mistake_of_the_graph(
    make_task: MakeTask, batch: Make
) -> None:
    for use, match in [
        (lambda ctx: ctx.join(CITIES), "'cities' is not joined by this group: add Join"),
        (lambda ctx: ctx.lookup(CITIES, "x"), "'cities' is not looked up by this group: add Lookup"),
        (lambda ctx: ctx.loopback(LOOP, "x", "y"), "'g-loop' is not the loop of this group: add Loop"),
    ]:
        use_it: Any = use
        group: Group[str, int] = Group(
            "g", Input(EVENTS, lambda ctx, _: use_it(ctx), on_error=OnError.SKIP), Join(USERS)  # noqa: B023 - called at once
        )  # fmt: skip
        task = make_task(group)
        with pytest.raises(GraphError, match=match):
            task.process(batch("events", [(b"a", b"x")]))
        task.close()


def test_a_lookup_asks_the_whole_table_by_the_decoded_key(make_task: MakeTask, batch: Make) -> None:
    seen: list[Any] = []
    group: Group[str, Any] = Group(
        "g", Input(EVENTS, lambda ctx, _: seen.append(ctx.lookup(CITIES, "Rome"))), Lookup(CITIES)
    )
    task = make_task(group, lookups={"cities": {"Rome": "yes"}})
    task.process(batch("events", [(b"a", b"x")]))
    assert seen == ["yes"]


# ---- changes -------------------------------------------------------------------------------------------------------


def following(
    seen: list[Any],
    on_error: OnError = OnError.STOP,
    refuse: Callable[[Any], bool] = lambda _: False,
    *edges: Any,
) -> Group[str, int]:
    def changed(ctx: Context[str, int], change: RowChange[int]) -> None:
        seen.append((ctx.key, change.old, change.new))
        ctx.set((ctx.value or 0) + 1)
        assert ctx.join(USERS) == change.new
        if refuse(change.new):
            ctx.fail("refused")

    return Group("g", Changes(USERS, changed, on_error=on_error), Persist(Long()), *edges)


def test_a_change_has_the_old_and_the_new_row_of_each_record_in_one_batch(
    make_task: MakeTask, batch: Make
) -> None:
    seen: list[Any] = []
    task = make_task(following(seen))
    values = [long(1), long(2), None, None, long(3)]
    work_through(task, batch("users", [(b"a", value) for value in values]))
    assert seen == [("a", None, 1), ("a", 1, 2), ("a", 2, None), ("a", None, None), ("a", None, 3)]
    assert rows_of(task) == {"a": long(5)}
    assert rows_of(task, "users") == {"a": long(3)}


def test_poison_among_changes_goes_to_the_dead_letters_once_and_is_the_joined_row_none_the_less(
    make_task: MakeTask, batch: Make
) -> None:
    seen: list[Any] = []
    task = make_task(following(seen))
    letters = work_through(
        task,
        batch("users", [(b"a", long(1)), (b"a", b"no long"), (b"\xff", long(2)), (None, long(2))]),
    )
    assert rows_of(task, "users") == {"a": b"no long"}
    work_through(task, batch("users", [(b"a", long(4))], first=4))
    assert seen == [("a", None, 1), ("a", 1, 4)]
    assert [(letter.topic, letter.key, letter.value) for letter in letters] == [
        ("g-dead-letters", b"a", b"no long"),
        ("g-dead-letters", b"\xff", long(2)),
        ("g-dead-letters", None, long(2)),
    ]
    assert rows_of(task, "users") == {"a": long(4)}


@pytest.mark.parametrize("on_error", GIVE_UP)
def test_a_change_that_its_handler_refuses_is_the_joined_row_none_the_less(
    on_error: OnError, make_task: MakeTask, batch: Make
) -> None:
    seen: list[Any] = []
    task = make_task(following(seen, on_error, refuse=lambda new: new == 2))
    letters = work_through(task, batch("users", [(b"a", long(1)), (b"a", long(2)), (b"b", long(9))]))
    assert rows_of(task, "users") == {"a": long(2), "b": long(9)}
    assert rows_of(task) == {"a": long(1), "b": long(1)}
    assert [letter.key for letter in letters] == ([b"a"] if on_error is OnError.DEAD_LETTER else [])
    work_through(task, batch("users", [(b"a", long(3))], first=3))
    assert seen[-1] == ("a", 1, 3)


def test_a_refused_change_stops_the_process_with_its_place(make_task: MakeTask, batch: Make) -> None:
    task = make_task(following([], refuse=lambda new: new == 2))
    with pytest.raises(HandlerFailed, match=r"Rejected: refused.*\(users\[0\]@6\)"):
        work_through(task, batch("users", [(b"a", long(1)), (b"b", long(2))], first=5))
    commit(task)
    assert (set(rows_of(task)), set(rows_of(task, "users"))) == ({"a"}, {"a"})
    assert task.committed_offsets["users"] == 6


def test_a_refused_change_sent_again_has_the_old_row_that_was_handled_last(
    make_task: MakeTask, batch: Make, record: Any
) -> None:
    seen: list[Any] = []
    broken = True
    group = following(seen, OnError.DEAD_LETTER, lambda _: broken)
    task = make_task(group)
    letters = work_through(task, batch("users", [(b"a", long(1)), (b"b", None), (b"c", long(3))]))
    broken = False
    seen.clear()
    task.close()

    def changed(ctx: Context[str, int], change: RowChange[int]) -> None:
        seen.append((ctx.key, change.old, change.new, ctx.join(USERS)))

    task = make_task(Group("g", Changes(USERS, changed), Persist(Long())))
    again = [record(o.key, o.value, number, o.headers) for number, o in enumerate(letters)]
    work_through(task, RecordBatch("g-retry", 0, again))
    assert seen == [("a", None, 1, 1), ("b", None, None, None), ("c", None, 3, 3)]


def test_a_change_whose_retry_fails_too_is_a_dead_letter_of_the_same_origin(
    make_task: MakeTask, batch: Make, record: Any
) -> None:
    task = make_task(
        Group(
            "g", Changes(USERS, lambda ctx, _: ctx.fail("no"), on_error=OnError.DEAD_LETTER), Persist(Long())
        )
    )
    (first,) = work_through(task, batch("users", [(b"a", long(1))], first=8))
    again = RecordBatch("g-retry", 0, [record(first.key, first.value, 0, first.headers)])
    (second,) = work_through(task, again)
    headers = dict(second.headers)
    assert (headers["streamtable-origin-topic"], headers["streamtable-origin-offset"]) == (b"users", b"8")
    assert headers["streamtable-attempt"] == b"2"


# ---- loops ---------------------------------------------------------------------------------------------------------


def test_a_looped_event_goes_out_with_the_commit_and_is_handled_when_it_comes_back(
    make_task: MakeTask, batch: Make
) -> None:
    def look(ctx: Context[str, int], event: str) -> None:
        ctx.loopback(LOOP, event, f"from {ctx.key}", headers=[("h", b"1")])

    def looped(ctx: Context[str, int], event: str) -> None:
        ctx.set((ctx.value or 0) + len(event))

    task = make_task(Group("g", Input(EVENTS, look), Loop(LOOP, looped), Persist(Long())))
    (sent,) = work_through(task, batch("events", [(b"a", b"b")]))
    assert (sent.topic, sent.key, sent.value, list(sent.headers)) == (
        "g-loop",
        b"b",
        b"from a",
        [("h", b"1")],
    )
    work_through(task, batch("g-loop", [(sent.key, sent.value)]))
    assert rows_of(task) == {"b": long(6)}


# ---- visits --------------------------------------------------------------------------------------------------------


def visiting(handler: Any, on_error: OnError = OnError.STOP) -> Group[str, int]:
    def put(ctx: Context[str, int], event: str) -> None:
        ctx.delete() if event == "delete" else ctx.set(int(event))

    return Group("g", Input(EVENTS, put), Output(LOOP), Persist(Long()), Visit("v", handler, on_error))


def request(
    batch: Make, progress: VisitProgress | None = None, first: int = 0, name: bytes = b"v"
) -> RecordBatch:
    return batch("g-visits", [(name, (progress or VisitProgress("run")).encode())], first=first)


def visit_on(task: Task, batch: Make, between: Callable[[int], None] = lambda _: None) -> VisitProgress:
    """Feed a visit's records back to it until it is done."""
    progress = VisitProgress("run", "argument")
    for number in range(100):
        (written,) = [
            o for o in work_through(task, request(batch, progress, number)) if o.topic == "g-visits"
        ]
        assert (written.key, written.partition) == (b"v", 0)
        found = VisitProgress.decode(written.value)
        assert found is not None
        progress = found
        if progress.done:
            return progress
        between(number)
    pytest.fail("it does not end")


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "ROWS_AT_ONCE", 3)


def add_one(ctx: Context[str, int], argument: str) -> None:
    assert argument in {"", "argument"}
    ctx.set((ctx.value or 0) + 1)


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 6, 10])
def test_a_visit_handles_each_row_once_and_says_how_many(rows: int, make_task: MakeTask, batch: Make) -> None:
    task = make_task(visiting(add_one))
    work_through(task, batch("events", [(b"k%02d" % number, b"0") for number in range(rows)]))
    done = visit_on(task, batch)
    assert (done.visited, done.argument) == (rows, "argument")
    assert rows_of(task) == {f"k{number:02}": long(1) for number in range(rows)}


def test_a_visit_that_is_done_is_not_begun_again(make_task: MakeTask, batch: Make) -> None:
    task = make_task(visiting(add_one))
    work_through(task, batch("events", [(b"a", b"0")]))
    assert work_through(task, request(batch, VisitProgress("run", visited=1, done=True))) == []
    assert rows_of(task) == {"a": long(0)}


def test_a_visit_sees_the_rows_that_are_not_yet_committed(make_task: MakeTask, batch: Make) -> None:
    task = make_task(visiting(add_one))
    work_through(task, batch("events", [(b"gone", b"0"), (b"there", b"0")]))
    task.process(batch("events", [(b"new", b"5"), (b"gone", b"delete")], first=2))
    task.process(request(batch))
    commit(task)
    assert rows_of(task) == {"new": long(6), "there": long(1)}


@pytest.mark.usefixtures("few_at_once")
def test_rows_that_come_and_go_do_not_disturb_a_visit_of_the_others(make_task: MakeTask, batch: Make) -> None:
    task = make_task(visiting(add_one))
    work_through(task, batch("events", [(b"k%02d" % number, b"0") for number in range(10)]))
    offsets = iter(range(10, 100, 5))

    def disturb(number: int) -> None:
        events: Rows = [
            (b"k%02d" % (9 - number), b"delete"),
            (b"a%d" % number, b"100"),
            (b"z%d" % number, b"100"),
        ]
        work_through(task, batch("events", events, first=next(offsets)))

    visit_on(task, batch, disturb)
    rows = {key: Long().decode(value) for key, value in rows_of(task).items()}
    assert {rows[f"k{number:02}"] for number in range(6)} == {1}
    assert {value for key, value in rows.items() if key[0] in "az"} <= {100, 101}
    assert rows["z0"] == 101


@pytest.mark.usefixtures("few_at_once")
def test_a_visit_that_deletes_what_it_visits_comes_to_its_end(make_task: MakeTask, batch: Make) -> None:
    task = make_task(visiting(lambda ctx, _: ctx.delete()))
    work_through(task, batch("events", [(b"", b"0"), *((b"k%d" % number, b"0") for number in range(7))]))
    assert visit_on(task, batch).visited == 8
    assert rows_of(task) == {}


@pytest.mark.usefixtures("few_at_once")
def test_a_chunk_of_which_all_rows_were_deleted_meanwhile_does_not_end_the_visit(
    make_task: MakeTask, batch: Make
) -> None:
    task = make_task(visiting(add_one))
    work_through(task, batch("events", [(b"k%d" % number, b"0") for number in range(5)]))
    task.process(batch("events", [(b"k%d" % number, b"delete") for number in range(3)], first=5))
    assert visit_on(task, batch).visited == 2
    assert rows_of(task) == {"k3": long(1), "k4": long(1)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"other", VisitProgress("run").encode()),
        (b"\xff", VisitProgress("run").encode()),
        (None, VisitProgress("run").encode()),
        (b"v", None),
        (b"v", b"{}"),
        (b"v", b'{"run":"run","argument":"","cursor":"","visited":0,"done":false}'),
        (b"v", VisitProgress("run").encode()[:-1]),
        (b"v", VisitProgress("run", visited=-1).encode()),
    ],
)
def test_a_record_that_asks_for_no_visit_is_a_dead_letter(
    key: bytes | None, value: bytes | None, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(visiting(add_one))
    (letter,) = work_through(task, batch("g-visits", [(key, value)]))
    assert (letter.topic, letter.key, letter.value) == ("g-dead-letters", key, value)
    assert b"no visit that group 'g' knows (v)" in (dict(letter.headers)["streamtable-message"] or b"")


def fail_at_b(ctx: Context[str, int], argument: str) -> None:
    ctx.emit(LOOP, ctx.key, "trace")
    add_one(ctx, argument)
    if ctx.key == "b":
        ctx.fail("not b")


@pytest.mark.parametrize("on_error", GIVE_UP)
def test_a_visit_that_is_given_up_leaves_no_trace(
    on_error: OnError, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(visiting(fail_at_b, on_error))
    work_through(task, batch("events", [(b"a", b"0"), (b"b", b"0")]))
    outputs = work_through(task, request(batch))
    if on_error is OnError.DEAD_LETTER:
        assert [o.topic for o in outputs] == ["g-dead-letters"]
        assert rows_of(task) == {"a": long(0), "b": long(0)}
    else:  # only the row is skipped
        assert [o.topic for o in outputs if o.topic != "g-loop"] == ["g-visits"]
        assert rows_of(task) == {"a": long(1), "b": long(0)}
    assert task.committed_offsets["g-visits"] == 1


def test_a_visit_that_fails_stops_the_process_and_is_begun_again(make_task: MakeTask, batch: Make) -> None:
    task = make_task(visiting(fail_at_b))
    work_through(task, batch("events", [(b"a", b"0"), (b"b", b"0")]))
    with pytest.raises(HandlerFailed, match=r"not b.*\(g-visits\[0\]@0\)"):
        work_through(task, request(batch))
    commit(task)
    assert task.committed_offsets["g-visits"] == 0
    assert rows_of(task) == {"a": long(0), "b": long(0)}


def test_a_visit_that_was_given_up_goes_on_when_its_dead_letter_is_sent_again(
    make_task: MakeTask, batch: Make, record: Any
) -> None:
    task = make_task(visiting(fail_at_b, OnError.DEAD_LETTER))
    work_through(task, batch("events", [(b"a", b"0"), (b"b", b"0")]))
    (letter,) = work_through(task, request(batch))
    task.close()
    mended = make_task(visiting(add_one, OnError.DEAD_LETTER))
    again = RecordBatch("g-retry", 0, [record(letter.key, letter.value, 0, letter.headers)])
    (written,) = work_through(mended, again)
    assert written.topic == "g-visits"
    assert rows_of(mended) == {"a": long(1), "b": long(1)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.sets(st.binary(max_size=2), max_size=12),
    meanwhile=st.lists(st.tuples(st.binary(max_size=2), st.booleans()), max_size=12),
    crashes=st.sets(st.integers(0, 5)),
)
def test_whatever_happens_a_row_that_is_there_throughout_is_visited_once(
    before: set[bytes],
    meanwhile: list[tuple[bytes, bool]],
    crashes: set[int],
    make_task: MakeTask,
    batch: Make,
    stores: MemoryStores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "ROWS_AT_ONCE", 2)
    stores.close()
    stores.destroy("g-table", 0)
    lists: Any = Json()
    stream = Stream("events", Hex(), String())

    def put(ctx: Context[bytes, Any], event: str) -> None:
        ctx.delete() if event == "delete" else ctx.set([])

    def visit(ctx: Context[bytes, Any], _: str) -> None:
        ctx.set([*(ctx.value or ()), 1])

    group: Group[Any, Any] = Group("g", Input(stream, put), Persist(Json()), Visit("v", visit))
    task = make_task(group)
    work_through(task, batch("events", [(key, b"put") for key in sorted(before)]))
    progress, at, changes = VisitProgress("run"), len(before), iter(meanwhile)
    for number in range(50):
        if (change := next(changes, None)) is not None:
            key, there = change
            before.discard(key)
            task.process(batch("events", [(key, b"put" if there else b"delete")], first=at))
            at += 1
        task.process(request(batch, progress, number))
        if number in crashes:
            offsets = task.rewind()
            at = offsets["events"]
            task.close()
            task = make_task(group, next_offsets=offsets, changelog_position=task.changelog_position)
            task.process(request(batch, progress, number))
        progress = VisitProgress.decode(
            next(o.value for o in commit(task) if o.topic == "g-visits")
        ) or pytest.fail("no progress")
        if progress.done:
            break
    with task.stores["g-table"].scan() as rows:
        visited = [key for key, value in rows for _ in lists.decode(value)]
    assert [key for key in visited if key in before] == sorted(before)
    task.close()


class Hex(String):
    """Any bytes are a key."""

    def decode(self, data: bytes) -> str:
        return data.hex()

    def decode_many(self, data: Any) -> Any:
        return Decoded([None if each is None else each.hex() for each in data], {})


# ---- around --------------------------------------------------------------------------------------------------------


def test_what_goes_around_handlers_sees_each_call_of_each_edge(make_task: MakeTask, batch: Make) -> None:
    seen: list[Any] = []

    def around(handler: Any) -> Any:
        def traced(ctx: Any, event: Any) -> None:
            seen.append((ctx.topic, ctx.key))
            handler(ctx, event)

        return traced

    group: Group[str, int] = Group(
        "g",
        Input(EVENTS, lambda ctx, event: ctx.loopback(LOOP, "b", event)),
        Loop(LOOP, lambda ctx, _: ctx.set(1)),
        Changes(USERS, lambda ctx, _: None),
        Persist(Long()),
        Visit("v", add_one),
    )
    task = make_task(group, around=around)
    work_through(
        task,
        batch("events", [(b"a", b"x")]),
        batch("g-loop", [(b"b", b"x")]),
        batch("users", [(b"c", long(1))]),
        request(batch),
    )
    assert seen == [("events", "a"), ("g-loop", "b"), ("users", "c"), ("g-visits", "b")]


def test_a_lookup_that_is_not_ready_is_not_the_records_fault(make_task: MakeTask, batch: Make) -> None:
    class Away:
        def get(self, key: str) -> Any:
            raise RetryLater("loading")

    def look(ctx: Context[str, Any], _: str) -> None:
        ctx.lookup(CITIES, "x")

    group = Group("g", Input(EVENTS, look, on_error=OnError.SKIP), Lookup(CITIES))
    with pytest.raises(RetryLater, match="loading"):
        make_task(group, lookups={"cities": Away()}).process(batch("events", [(b"a", b"x")]))
