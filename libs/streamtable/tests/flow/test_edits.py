"""A running flow is edited: its state is kept where it means the same, and a start is refused where it does not."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable import Avro, Long, Stream, String
from streamtable.errors import StateMeaningChanged
from streamtable.flow import Flow, Hopping, KeyedStream, KeyedTable, Session, Sliding, Tumbling
from streamtable_testing.tester import Tester

NUMBERS = Stream("numbers", String(), Long())
OUT = Stream("out", String(), Long())
MINUTE = Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10))
EVENTS = [("a", 1), ("b", 2), ("a", 3)]

Build = Callable[[Flow], KeyedTable[Any, Any]]


def stream(flow: Flow) -> KeyedStream[str, int]:
    return flow.stream(NUMBERS, time=lambda value: value * 1000)


def before(flow: Flow) -> KeyedTable[Any, Any]:
    """The flow as it runs first."""
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(MINUTE).count("counts")


def with_more_steps(flow: Flow) -> KeyedTable[Any, Any]:
    numbers = stream(flow).peek(lambda key, value: None).filter(bool).map_values(lambda v: v, value=Long())
    again = numbers.group_by("digit", str, key=String())
    return again.window(MINUTE).count("counts")


def with_fewer_steps(flow: Flow) -> KeyedTable[Any, Any]:
    return stream(flow).group_by("digit", str, key=String()).window(MINUTE).count("counts")


def with_another_table(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = stream(flow).filter(bool).group_by("digit", str, key=String())
    grouped.sum("sums", lambda v: v)
    return grouped.window(MINUTE).count("counts")


def with_another_branch_before(flow: Flow) -> KeyedTable[Any, Any]:
    numbers = stream(flow)
    numbers.key_by("other", lambda v: v, key=Long()).group_by_key().count("others")
    numbers.to(OUT)
    return numbers.filter(bool).group_by("digit", str, key=String()).window(MINUTE).count("counts")


def with_a_consumer_of_the_table(flow: Flow) -> KeyedTable[Any, Any]:
    table = stream(flow).filter(bool).group_by("digit", str, key=String()).window(MINUTE).count("counts")
    table.final().map(lambda window, n: (window.key, n)).to(OUT)
    return table


@pytest.mark.parametrize(
    "after",
    [with_more_steps, with_fewer_steps, with_another_table, with_another_branch_before, with_a_consumer_of_the_table],
)  # fmt: skip
def test_an_edit_that_leaves_names_and_meanings_keeps_the_state(tester: Tester, after: Build) -> None:
    first = Flow("f")
    table = before(first)
    run(tester, first)
    for group in first.groups:
        tester.leave(group)
    second = Flow("f")
    edited = after(second)
    assert edited.table.name == table.table.name
    rerun(tester, first, second)
    tester.emit_many(NUMBERS, EVENTS)
    assert {key.key: n for key, n in tester.table(edited.table).items()} == {"1": 2, "2": 2, "3": 2}


def with_another_size(flow: Flow) -> KeyedTable[Any, Any]:
    hour = Tumbling(timedelta(hours=1), grace=timedelta(seconds=10))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(hour).count("counts")


def with_another_kind_of_window(flow: Flow) -> KeyedTable[Any, Any]:
    hopping = Hopping(timedelta(minutes=1), timedelta(seconds=30), grace=timedelta(seconds=10))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(hopping).count("counts")


def with_sessions(flow: Flow) -> KeyedTable[Any, Any]:
    session = Session(timedelta(minutes=1), grace=timedelta(seconds=10))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(session).count("counts")


def with_another_operator(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = stream(flow).filter(bool).group_by("digit", str, key=String())
    return grouped.window(MINUTE).sum("counts", lambda v: v)


def with_another_codec(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = stream(flow).filter(bool).group_by("digit", str, key=String())
    return grouped.window(MINUTE).count("counts", value=Avro("long"))


def without_windows(flow: Flow) -> KeyedTable[Any, Any]:
    return stream(flow).filter(bool).group_by("digit", str, key=String()).count("counts")


def with_another_key(flow: Flow) -> KeyedTable[Any, Any]:
    numbers = stream(flow).filter(bool).group_by("digit", lambda v: v, key=Long())
    return numbers.window(MINUTE).count("counts")


def with_sliding_windows(flow: Flow) -> KeyedTable[Any, Any]:
    sliding = Sliding(timedelta(minutes=1), grace=timedelta(0))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(sliding).count("counts")


def with_another_grace(flow: Flow) -> KeyedTable[Any, Any]:
    longer = Tumbling(timedelta(minutes=1), grace=timedelta(minutes=1))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(longer).count("counts")


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (with_another_size, "3600000 ms"),
        (with_another_kind_of_window, "hopping windows"),
        (with_sessions, "sessions with a gap"),
        (with_sliding_windows, "sliding windows of 60000 ms"),
        (with_another_operator, "sum in tumbling"),
        (with_another_codec, "Avro"),
        (without_windows, "count"),
        (with_another_key, "Long"),
        (with_another_grace, "grace of 60000 ms"),
    ],
)
def test_an_edit_that_changes_what_a_name_means_is_refused_at_the_start(
    tester: Tester, after: Build, reason: str
) -> None:
    first = Flow("f")
    table = before(first)
    run(tester, first)
    kept = tester.table(table.table)
    for group in first.groups:
        tester.leave(group)
    second = Flow("f")
    after(second)
    with pytest.raises(StateMeaningChanged, match=reason) as refused:
        rerun(tester, first, second)
    assert "count in tumbling windows of 60000 ms" in str(refused.value)
    # The command needs both options: what the error says can be pasted.
    assert f"group reset {refused.value.group} --to earliest --empty-table" in str(refused.value)
    assert tester.table(table.table) == kept


class Plain(String):
    """A codec without a text of its own, as user code has them."""

    __repr__ = object.__repr__


def by_plain_keys(flow: Flow) -> KeyedTable[Any, Any]:
    return stream(flow).group_by("digit", str, key=Plain()).window(MINUTE).count("counts")


def test_a_codec_without_a_text_of_its_own_means_the_same_at_the_next_start(tester: Tester) -> None:
    first, second = Flow("f"), Flow("f")
    table = by_plain_keys(first)
    run(tester, first)
    for group in first.groups:
        tester.leave(group)
    by_plain_keys(second)
    rerun(tester, first, second)
    tester.emit_many(NUMBERS, EVENTS)
    assert sum(tester.table(table.table).values()) == 2 * len(EVENTS)


def run(tester: Tester, flow: Flow) -> None:
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)


def rerun(tester: Tester, first: Flow, second: Flow) -> None:
    """Start another flow in place of the first, on empty disks: all that is known of it is in Kafka."""
    for group in first.groups:
        del tester._instances[group.name]
    tester.run(second)
