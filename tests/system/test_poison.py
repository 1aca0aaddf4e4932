"""One bad record, whatever is bad about it, neither stops the others nor leaves a trace where it should not."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.system.bench import Bench, Found, until

from streamtable import (
    BatchContext,
    Context,
    Count,
    Group,
    Input,
    Long,
    OnError,
    Output,
    Persist,
    Stream,
    String,
)
from streamtable.base.types import TopicPartition
from streamtable.errors import HandlerFailed

POISON = b"\xff\xfe"


def count_and_tell(ctx: Context[str, int], event: str) -> None:
    ctx.set((ctx.value or 0) + 1)
    if ctx.topic.endswith("-in"):
        ctx.emit(Stream(ctx.topic.removesuffix("-in") + "-out", String(), String()), ctx.key, event)
    if event == "bad":
        raise ValueError("bad event")


def count_batch(records: BatchContext[str, str, int]) -> None:
    rows = records.get_many(records.keys)
    out = Stream(records.topic.removesuffix("-in") + "-out", String(), String())
    for key, event in zip(records.keys, records.events, strict=True):
        rows[key] = (rows[key] or 0) + 1
        records.put_many({key: rows[key]})
        records.emit(out, key, event)
        if event == "bad":
            raise ValueError("bad event")


class CountGood(Count):
    def fold(self, rows: Any, keys: Sequence[bytes], events: Sequence[Any]) -> None:
        super().fold(rows, keys, events)
        if "bad" in events:
            raise ValueError("bad event")


KINDS: dict[str, dict[str, Any]] = {
    "per record": {"handler": count_and_tell},
    "per batch": {"batch": count_batch},
    "aggregate": {"aggregate": CountGood()},
}


def make(bench: Bench, on_error: OnError, kind: str = "per record", **changes: Any) -> Group[str, int]:
    group: Group[str, int] = Group(
        bench.name("g"),
        Input(bench.stream(), **KINDS[kind], on_error=on_error),
        Output(bench.stream("out")),
        Persist(Long()),
    )
    bench.create(group, **changes)
    return group


def origins(letters: Sequence[Found]) -> list[tuple[int, str]]:
    """Offset at the origin, and type of error."""
    return [
        (
            int(letter.headers["streamtable-origin-offset"] or b""),
            (letter.headers["streamtable-error"] or b"").decode(),
        )
        for letter in letters
    ]


@pytest.mark.parametrize(
    ("kind", "on_error"), [(kind, OnError.DEAD_LETTER) for kind in KINDS] + [("per batch", OnError.SKIP)]
)
def test_the_records_around_a_bad_one_are_counted_once_and_it_leaves_no_trace(
    bench: Bench, kind: str, on_error: OnError
) -> None:
    group = make(bench, on_error, kind)
    rows: list[tuple[Any, Any]] = [
        ("a", "x"),
        ("b", POISON),
        ("a", "bad"),
        ("a", "x"),
        ("c", "x"),
        ("b", "bad"),
    ]
    bench.send(bench.name("in"), *rows)
    bench.work_off(group)
    assert bench.table(group) == bench.rows(group) == {"a": 2, "c": 1}
    expected = [] if kind == "aggregate" else [(b"a", b"x"), (b"a", b"x"), (b"c", b"x")]
    assert [(r.key, r.value) for r in bench.read(bench.name("out"))] == expected
    failed = [(2, "ValueError"), (5, "ValueError")] if on_error is OnError.DEAD_LETTER else []
    letters = bench.letters(group)
    assert sorted(origins(letters)) == sorted([(1, "DeserializationError"), *failed])
    assert bench.committed(group)[TopicPartition(bench.name("in"), 0)] == 6
    for letter in letters:
        assert letter.headers["streamtable-origin-topic"] == bench.name("in").encode()
        assert letter.headers["streamtable-group"] == group.name.encode()
        assert letter.headers["streamtable-message"]
        assert (letter.key, letter.value) in {(key.encode(), v if v == POISON else b"bad") for key, v in rows}


@pytest.mark.parametrize("kind", ["per record", "aggregate"])
def test_with_stop_the_process_ends_and_goes_on_after_it_was_corrected(bench: Bench, kind: str) -> None:
    group = make(bench, OnError.STOP, kind)
    bench.send(bench.name("in"), ("a", "x"), ("a", "bad"), ("a", "x"))
    error = bench.run(group).failure()
    assert isinstance(error, HandlerFailed)
    assert isinstance(error.__cause__, ValueError)
    assert error.topic == bench.name("in")
    assert bench.letters(group) == []
    assert bench.committed(group)[TopicPartition(bench.name("in"), 0)] == 1, "the good record before it"
    assert bench.table(group) == {"a": 1}
    same_name = type(CountGood.__name__, (Count,), {})  # another name would be another meaning of the rows
    kinds: dict[str, dict[str, Any]] = {
        "per record": {"handler": lambda ctx, _: ctx.set((ctx.value or 0) + 1)},
        "aggregate": {"aggregate": same_name()},
    }
    corrected: Group[str, int] = Group(group.name, Input(bench.stream(), **kinds[kind]), Persist(Long()))
    bench.work_off(corrected)
    assert bench.table(group) == {"a": 3}


def test_whatever_a_record_is_made_of_it_is_counted_or_set_aside(bench: Bench) -> None:
    group = make(bench, OnError.DEAD_LETTER)
    many = [("h", b"%d" % n) for n in range(10_000)]
    bench.send(
        bench.name("in"),
        ("", "an empty key is a key"),
        (None, "no key"),
        ("a", None),
        (b"\xff", "no text as key"),
        ("a", "", many),
        ("a", POISON, many),
        ("a", "x" * 900_000),
        ("a", POISON * 450_000, many[:1_000]),
    )
    bench.work_off(group)
    assert bench.rows(group) == {"": 1, "a": 2}
    letters = bench.letters(group)
    assert [offset for offset, _ in origins(letters)] == [1, 2, 3, 5, 7]
    assert [letter.key for letter in letters] == [None, b"a", b"\xff", b"a", b"a"]
    assert letters[1].value is None
    assert letters[4].value == POISON * 450_000


def too_large(kind: str) -> Callable[[Context[str, str], str], None]:
    def row(ctx: Context[str, str], event: str) -> None:
        ctx.set("x" * int(event))

    def output(ctx: Context[str, str], event: str) -> None:
        ctx.set("told")
        name = ctx.topic.removesuffix("-in") + "-out"
        ctx.emit(Stream(name, String(), String()), ctx.key, "x" * int(event))

    return row if kind == "row" else output


@pytest.mark.parametrize("kind", ["row", "output"])
def test_what_is_too_large_for_its_topic_is_set_aside_and_the_limit_is_kafkas_own(
    bench: Bench, kind: str
) -> None:
    group: Group[str, str] = Group(
        bench.name("g"),
        Input(bench.stream(), too_large(kind), on_error=OnError.DEAD_LETTER),
        Output(bench.stream("out")),
        Persist(String()),
    )
    bench.create(group)
    # The topic's limit is 1,048,588 bytes a record batch: 1,040,000 must fit, and so it must for the client.
    bench.send(bench.name("in"), ("a", "10"), ("b", "1048588"), ("c", "1040000"), ("d", "10"))
    bench.work_off(group)
    assert origins(bench.letters(group)) == [(1, "SerializationError")]
    topic = group.table.name if kind == "row" else bench.name("out")
    assert {record.key: len(record.value or b"") for record in bench.read(topic)} == {
        b"a": 10,
        b"c": 1_040_000,
        b"d": 10,
    }


def test_a_dead_letter_that_is_too_large_for_its_topic_arrives_without_its_value(bench: Bench) -> None:
    group = make(bench, OnError.DEAD_LETTER, config={"dead-letters": {"max.message.bytes": "2000"}})
    bench.send(
        bench.name("in"),
        ("a", POISON * 5_000),
        ("b", POISON, [("h", b"x" * 10_000)]),
        ("c" * 5_000, POISON),
        ("a", "x"),
    )
    bench.work_off(group)
    letters = bench.letters(group)
    assert [offset for offset, _ in origins(letters)] == [0, 1, 2]
    assert [letter.key for letter in letters] == [b"a", b"b", None]
    assert {letter.value for letter in letters} == {None}
    omitted = [letter.headers["streamtable-value-omitted-bytes"] for letter in letters]
    assert omitted == [b"10000", b"2", b"2"]
    assert bench.rows(group) == {"a": 1}


def test_dead_letters_sent_again_are_handled_as_their_origins_records(bench: Bench) -> None:
    group = make(bench, OnError.DEAD_LETTER)
    bench.send(bench.name("in"), ("a", "bad"), ("b", "bad"))
    with bench.run(group) as running:
        bench.wait_handled(group, running)
        first, second = bench.letters(group)
        bench.send(
            group.retry,
            (first.key, "good now", list(first.headers.items())),
            (second.key, second.value, list(second.headers.items())),
            ("c", "who sent me?"),
        )
        bench.wait_handled(group, running)
    assert bench.rows(group) == {"a": 1}
    again, stray = bench.letters(group)[2:]
    assert origins([again]) == [(1, "ValueError")]
    assert again.headers["streamtable-origin-topic"] == bench.name("in").encode()
    assert again.headers["streamtable-attempt"] == b"2"
    assert stray.headers["streamtable-error"] == b"DeserializationError"
    assert b"no origin headers" in (stray.headers["streamtable-message"] or b"")


def test_a_bad_record_does_not_hold_up_other_partitions(bench: Bench) -> None:
    group: Group[str, int] = Group(
        bench.name("g"), Input(bench.stream(), count_and_tell, on_error=OnError.STOP), Output(bench.stream("out")),
        Persist(Long()),
    )  # fmt: skip
    bench.create(group, partitions=2)
    bench.send(bench.name("in"), ("a", POISON), partition=0)
    bench.send(bench.name("in"), ("b", "x"), partition=1)
    with bench.run(group) as running:
        until(lambda: bench.table(group) == {"b": 1}, "the other partition is handled")
        bench.wait_handled(group, running)
    assert origins(bench.letters(group)) == [(0, "DeserializationError")]


def test_many_small_rows_fit_a_topic_that_accepts_only_small_batches(bench: Bench) -> None:
    group = make(bench, OnError.STOP, config={"table": {"max.message.bytes": "20000"}})
    bench.send(bench.name("in"), *((f"user-{number}", "x") for number in range(5_000)))
    bench.work_off(group)
    assert len(bench.rows(group)) == 5_000
