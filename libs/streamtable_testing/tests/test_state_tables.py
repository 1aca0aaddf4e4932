"""State tables: several tables of one group, in one commit, also across kills and losses of disks."""

from collections.abc import Iterable
from typing import Any

import pytest

from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.partitioner import partition_for
from streamtable.base.topics import Stream
from streamtable.base.types import Guarantee
from streamtable.codec.plain import Json, Long, String
from streamtable.errors import GraphError, HandlerFailed, StateLost, StateMeaningChanged
from streamtable.graph.aggregate import Count
from streamtable.graph.group import Group, Input, OnError, Output, Persist
from streamtable.graph.state import State
from streamtable.handlers.context import BatchContext, Context
from streamtable_testing import Tester

WORDS = Stream("words", String(), String())
SEEN = Stream("seen", String(), String())
LENGTHS = State("lengths", key=Long(), value=Long())
LAST = State[str, Any]("last", key=String(), value=Json())


def each(ctx: Context[str, int], word: str) -> None:
    """Count the words of a key and of a length, and keep the last two of each first letter."""
    lengths, last = ctx.table(LENGTHS), ctx.table(LAST)
    ctx.set((ctx.value or 0) + 1)
    lengths.put(len(word), (lengths.get(len(word)) or 0) + 1)
    letter = last.get(word[0]) or []
    letter.append(word)  # in place, before what may fail
    last.put(word[0], letter[-2:])
    ctx.emit(SEEN, ctx.key, word)
    if word.startswith("bad"):
        ctx.fail("bad")


def whole(batch: BatchContext[str, str, int]) -> None:
    lengths = batch.table(LENGTHS)
    rows = lengths.get_many(map(len, batch.events))
    for word in batch.events:
        rows[len(word)] = (rows[len(word)] or 0) + 1
        if word.startswith("bad"):
            batch.fail("bad")
    for length, count in rows.items():
        lengths.put(length, count or 0)


def group_of(on_error: OnError = OnError.DEAD_LETTER) -> Group[str, int]:
    return Group(
        "counted", Input(WORDS, each, on_error=on_error), Output(SEEN), Persist(Long()), LENGTHS, LAST
    )


def emit(tester: Tester, words: Iterable[str]) -> None:
    tester.emit_many(WORDS, [("a", word) for word in words])


def check(tester: Tester, group: Group[str, int], words: list[str]) -> None:
    """Assert the contents of all tables and of the output after these words, each handled once."""
    assert tester.table(group) == {"a": len(words)}
    lengths = [len(word) for word in words]
    assert tester.table(group, LENGTHS) == {length: lengths.count(length) for length in lengths}
    letters = {word[0] for word in words}
    assert tester.table(group, LAST) == {
        letter: [word for word in words if word[0] == letter][-2:] for letter in letters
    }
    assert [record.value for record in tester.records(SEEN)] == words


def test_two_states_and_the_table_change_together(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    emit(tester, ["one", "two", "three"])
    check(tester, group, ["one", "two", "three"])
    tester.stop(group)
    tester.start(group)
    emit(tester, ["four", "five"])
    check(tester, group, ["one", "two", "three", "four", "five"])


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False], ids=["disk kept", "disk lost"])
def test_each_record_counts_once_in_each_table_whenever_the_process_was_killed(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    tester: Tester,
) -> None:
    group = group_of()
    tester.run(group)
    emit(tester, ["one", "two", "three"])
    tester.crash(group, at=step)
    emit(tester, ["four", "five"])
    tester.start(group, disk=disk)
    tester.advance(60)
    emit(tester, ["six"])
    check(tester, group, ["one", "two", "three", "four", "five", "six"])


def test_the_next_owner_of_a_partition_has_its_states(tester: Tester) -> None:
    group = group_of()
    tester.run(group, partitions=3, standby=True)
    words = [f"w{number}" for number in range(30)]
    for number in range(5):
        tester.emit_many(WORDS, [(f"k{word}", word) for word in words[number::5]])
        tester.join(group) if number % 2 else tester.crash(group)
        tester.start(group, disk=number < 3)
        tester.advance(60)
    # Each partition has counted its own words; the rows of all partitions together are all words.
    counts = [record.value() for _, record in tester.kafka.records("counted-lengths")]
    assert counts
    assert sum(tester.table(group).values()) == 30
    last_of: dict[tuple[int, bytes], int] = {}
    for place, record in tester.kafka.records("counted-lengths"):
        last_of[place.partition, record.key() or b""] = Long().decode(record.value() or b"")
    assert sum(last_of.values()) == 30


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_a_record_that_fails_changes_no_table(on_error: OnError, tester: Tester) -> None:
    group = group_of(on_error)
    tester.run(group)
    emit(tester, ["one", "two", "bad1", "three", "bravo", "bad2", "four"])
    check(tester, group, ["one", "two", "three", "bravo", "four"])
    assert len(tester.dead_letters(group)) == (2 if on_error is OnError.DEAD_LETTER else 0)
    emit(tester, ["five", "bad3"])  # carefully from the first record on
    check(tester, group, ["one", "two", "three", "bravo", "four", "five"])


def test_what_came_before_a_record_that_stops_the_process_is_committed(tester: Tester) -> None:
    group = group_of(OnError.STOP)
    tester.run(group)
    with pytest.raises(HandlerFailed):
        emit(tester, ["one", "bravo", "bad1", "three"])
    check(tester, group, ["one", "bravo"])


def test_a_batch_that_fails_changes_no_state(tester: Tester) -> None:
    group = Group[str, int](
        "counted", Input(WORDS, batch=whole, on_error=OnError.DEAD_LETTER), Persist(Long()), LENGTHS
    )
    tester.run(group)
    emit(tester, ["one", "two", "bad1", "three"])
    assert tester.table(group, LENGTHS) == {3: 2, 5: 1}
    assert len(tester.dead_letters(group)) == 1


def test_a_row_that_does_not_fit_its_codec_is_the_fault_of_its_record(tester: Tester) -> None:
    def put(ctx: Context[str, None], word: str) -> None:
        ctx.table(LENGTHS).put(len(word), 7 if word != "unfit" else 1 << 70)

    group = Group[str, None]("counted", Input(WORDS, put, on_error=OnError.DEAD_LETTER), LENGTHS)
    tester.run(group)
    emit(tester, ["a", "unfit", "bb"])
    assert tester.table(group, LENGTHS) == {1: 7, 2: 7}
    [letter] = tester.dead_letters(group)
    assert letter.value == b"unfit"


def test_ranges_and_prefixes_are_in_the_order_of_keys_and_see_what_is_not_committed(tester: Tester) -> None:
    found: dict[str, list[tuple[str, Any]]] = {}

    def handle(ctx: Context[str, None], word: str) -> None:
        table = ctx.table(LAST)
        command, _, key = word.partition(" ")
        match command:
            case "put":
                table.put(key, key.upper())
            case "delete":
                table.delete(key)
            case "look":
                found["range"] = list(table.range("b", "d"))
                found["prefix"] = list(table.prefix("b"))
                found["all"] = list(table.range())
                if key:
                    ctx.fail("look carefully")

    group = Group[str, None]("ordered", Input(WORDS, handle, on_error=OnError.SKIP), LAST)
    tester.run(group)
    emit(tester, [f"put {key}" for key in ("a", "b", "b1", "b3", "c", "d")])
    for look in ("look", "look carefully", "look"):
        emit(tester, ["put b2", "delete b1", "put c1", look])
        assert [key for key, _ in found["range"]] == ["b", "b2", "b3", "c", "c1"]
        assert found["prefix"] == [("b", "B"), ("b2", "B2"), ("b3", "B3")]
        assert [key for key, _ in found["all"]] == ["a", "b", "b2", "b3", "c", "c1", "d"]
        emit(tester, ["put b1", "delete b2", "delete c1"])


def test_a_long_range_can_be_changed_while_it_is_walked(tester: Tester) -> None:
    numbers = State("numbers", key=String(), value=Long())
    seen: list[str] = []

    def handle(ctx: Context[str, None], word: str) -> None:
        table = ctx.table(numbers)
        if word == "fill":
            for number in range(1000):
                table.put(f"{number:04}", number)
            return
        for key, number in table.range():
            seen.append(key)
            if number % 2:
                table.delete(key)
            else:
                table.put(key, number + 1000)

    group = Group[str, None]("ordered", Input(WORDS, handle), numbers)
    tester.run(group)
    emit(tester, ["fill"])
    emit(tester, ["walk"])
    assert seen == [f"{number:04}" for number in range(1000)]
    assert tester.table(group, numbers) == {f"{n:04}": n + 1000 for n in range(0, 1000, 2)}


def test_aggregates_fold_into_a_state_by_raw_keys(tester: Tester) -> None:
    def fold(batch: BatchContext[str, str, None]) -> None:
        Count().fold(
            batch.table(LENGTHS).raw, [Long().encode(len(word)) for word in batch.events], batch.events
        )
        if "bad" in batch.events:
            batch.fail("bad")

    group = Group[str, None]("folded", Input(WORDS, batch=fold, on_error=OnError.SKIP), LENGTHS)
    tester.run(group)
    emit(tester, ["one", "two", "three"])
    emit(tester, ["one", "bad", "three"])
    assert tester.table(group, LENGTHS) == {3: 3, 5: 2}


def test_a_row_that_one_partition_has_deleted_is_shown_of_another_one(tester: Tester) -> None:
    def put_or_delete(ctx: Context[str, Any], word: str) -> None:
        if word == "delete":
            ctx.table(LAST).delete("x")
        else:
            ctx.table(LAST).put("x", word)

    group = Group[str, Any]("g", Input(WORDS, put_or_delete), LAST)
    tester.run(group, partitions=2)
    keys = {partition_for(key.encode(), 2): key for key in "abcdef"}
    for partition in (0, 1):
        tester.emit(WORDS, keys[partition], f"of {partition}")
    assert tester.table(group, LAST) == {"x": "of 1"}
    tester.emit(WORDS, keys[1], "delete")
    assert tester.table(group, LAST) == {"x": "of 0"}
    tester.emit(WORDS, keys[0], "delete")
    assert tester.table(group, LAST) == {}


def test_a_view_shows_the_rows_of_a_state(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    view = tester.view(group.state_table(LENGTHS))
    emit(tester, ["one", "two", "three"])
    assert dict(view.iterate()) == {3: 2, 5: 1}
    assert view.get(5) == 1


def test_a_state_with_another_meaning_than_its_rows_is_refused_at_start(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    emit(tester, ["one"])
    tester.stop(group)
    changed = Group[str, int](
        "counted",
        Input(WORDS, each),
        Output(SEEN),
        Persist(Long()),
        State("lengths", key=Long(), value=Long(), meaning="in bytes"),
        LAST,
    )
    with pytest.raises(
        StateMeaningChanged, match=r"'Long\(\) to Long\(\); in bytes'.*'Long\(\) to Long\(\)'"
    ) as refused:
        tester.start(changed)
    assert (refused.value.state, refused.value.topic) == ("lengths", "counted-lengths")
    tester.start(group)  # as before: nothing was changed
    emit(tester, ["two"])
    check(tester, group, ["one", "two"])


def test_a_state_can_be_added_to_a_group_that_has_committed(tester: Tester) -> None:
    def count(ctx: Context[str, int], word: str) -> None:
        ctx.set((ctx.value or 0) + len(word))

    before, after = Group[str, int]("counted", Input(WORDS, count), Persist(Long())), group_of()
    tester.run(before)
    emit(tester, ["one"])
    tester.stop(before)
    tester.start(after)
    emit(tester, ["two"])
    assert tester.table(after) == {"a": 4}
    assert tester.table(after, LENGTHS) == {3: 1}


def test_a_state_whose_topic_is_lost_stops_the_group(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    emit(tester, ["one"])
    tester.stop(group)
    tester.kafka.delete_topic("counted-lengths")
    tester.kafka.create_topic("counted-lengths", compacted=True)
    with pytest.raises(StateLost, match="counted-lengths"):
        tester.start(group)


def test_at_least_once_loses_nothing_of_a_state(tester: Tester) -> None:
    group = group_of()
    tester.run(group, guarantee=Guarantee.AT_LEAST_ONCE)
    emit(tester, ["one", "two"])
    tester.crash(group, at="flushed")
    emit(tester, ["three"])
    tester.start(group, disk=False)
    tester.advance(60)
    assert tester.table(group, LENGTHS)[3] == 2
    assert tester.table(group, LENGTHS)[5] >= 1


def test_a_state_that_the_graph_does_not_have_is_refused(tester: Tester) -> None:
    group = Group[str, None]("bare", Input(WORDS, each))  # type: ignore[arg-type] # a handler of a group with a table
    tester.run(group)
    with pytest.raises(GraphError, match="'lengths'"):
        emit(tester, ["one"])
