"""`Once`: a repeated event changes nothing, wherever the crash was and however the records came."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.topics import Stream
from streamtable.codec.plain import Json, Long, String
from streamtable.errors import HandlerFailed
from streamtable.graph.aggregate import Count, Sum
from streamtable.graph.group import Group, Input, OnError, Output, Persist
from streamtable.graph.once import Once
from streamtable.handlers.context import BatchContext, Context
from streamtable_testing import Tester

CLICKS = Stream[str, Any]("clicks", String(), Json())
SEEN = Stream("seen", String(), String())
HOUR_MS = 3_600_000


def each(ctx: Context[str, int], click: Any) -> None:
    if click.get("bad"):
        ctx.fail("bad")
    ctx.set((ctx.value or 0) + 1)
    ctx.emit(SEEN, ctx.key, str(click["id"]))


def whole(batch: BatchContext[str, Any, int]) -> None:
    rows = batch.get_many(batch.keys)
    for key, click in zip(batch.keys, batch.events, strict=True):
        if click.get("bad"):
            batch.fail("bad")
        rows[key] = (rows[key] or 0) + 1
        batch.emit(SEEN, key, str(click["id"]))
    batch.put_many({key: row for key, row in rows.items() if row is not None})


KINDS: dict[str, dict[str, Any]] = {
    "per record": {"handler": each},
    "batch": {"batch": whole},
    "aggregate": {"aggregate": Count()},
}


def one(click: Any) -> int:
    if click.get("bad"):
        raise ValueError("bad")
    return 1


FAILING: dict[str, dict[str, Any]] = {**KINDS, "aggregate": {"aggregate": Sum(one)}}
"""The same, and all of them fail for a click that is bad."""


def group_of(
    kind: str = "per record",
    *,
    by: Any = "id",
    hours: float = 1,
    on_error: OnError = OnError.DEAD_LETTER,
    kinds: Mapping[str, dict[str, Any]] = KINDS,
) -> Group[str, int]:
    once = Once[Any](by=by, within=timedelta(hours=hours))
    return Group(
        "counted", Input(CLICKS, **kinds[kind], once=once, on_error=on_error), Output(SEEN), Persist(Long())
    )


def clicks(ids: Iterable[Any], key: str = "a") -> list[tuple[str, Any]]:
    return [(key, {"id": each}) for each in ids]


def failing(ids: Iterable[str], bad: Collection[str]) -> list[tuple[str, Any]]:
    return [("a", {"id": each, "bad": each in bad}) for each in ids]


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_event_changes_nothing(kind: str, tester: Tester) -> None:
    group = group_of(kind)
    tester.run(group)
    ids = [str(uuid4()) for _ in range(10)]
    tester.emit_many(CLICKS, clicks(ids[:6]))
    tester.emit_many(CLICKS, clicks([*ids[3:], *ids[:7], ids[9]]))
    assert tester.table(group) == {"a": 10}
    assert tester.dead_letters(group) == []
    if kind != "aggregate":
        assert [record.value for record in tester.records(SEEN)] == ids


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False], ids=["disk kept", "disk lost"])
def test_a_repeat_is_recognised_whenever_the_process_was_killed(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    tester: Tester,
) -> None:
    group = group_of()
    tester.run(group)
    ids = [str(number) for number in range(6)]
    tester.emit_many(CLICKS, clicks(ids[:3]))
    tester.crash(group, at=step)
    tester.emit_many(CLICKS, clicks([*ids[1:], ids[5]]))
    tester.start(group, disk=disk)
    tester.advance(60)
    tester.emit_many(CLICKS, clicks(ids))
    assert tester.table(group) == {"a": 6}


def test_a_repeat_is_recognised_by_the_next_owner_of_the_partition(tester: Tester) -> None:
    group = group_of()
    tester.run(group, partitions=3, standby=True)
    ids = [str(number) for number in range(30)]
    events = [(f"k{number % 9}", {"id": each}) for number, each in enumerate(ids)]
    for number in range(5):
        tester.emit_many(CLICKS, events)
        tester.join(group) if number % 2 else tester.advance(5)
    assert sum(tester.table(group).values()) == 30


def test_an_id_is_forgotten_when_the_horizon_has_passed_and_not_before(tester: Tester) -> None:
    group = group_of(hours=1)
    tester.run(group)
    start = 1_000_000
    for timestamp_ms in (start, start + HOUR_MS, start + HOUR_MS + 1, start + 2 * HOUR_MS + 1):
        tester.emit(CLICKS, "a", {"id": "x"}, timestamp_ms=timestamp_ms)
    # Accepted at 0, and again at an hour and a millisecond: the last is within its hour.
    assert tester.table(group) == {"a": 2}


def test_late_events_do_not_turn_time_back(tester: Tester) -> None:
    group = group_of(hours=1)
    tester.run(group)
    tester.emit(CLICKS, "a", {"id": "x"}, timestamp_ms=3 * HOUR_MS)
    tester.emit(CLICKS, "a", {"id": "y"}, timestamp_ms=HOUR_MS)  # accepted at the stream time, not at its own
    tester.emit(CLICKS, "a", {"id": "y"}, timestamp_ms=4 * HOUR_MS)
    assert tester.table(group) == {"a": 2}


def test_a_clock_from_the_future_expires_nothing(tester: Tester) -> None:
    group = group_of(hours=1)
    tester.run(group)
    tester.emit(CLICKS, "a", {"id": "x"})
    tester.emit(CLICKS, "a", {"id": "y"}, timestamp_ms=2**52)
    tester.emit(CLICKS, "a", {"id": "x"})
    assert tester.table(group) == {"a": 2}


def test_ids_beyond_the_horizon_go_from_the_changelog_and_the_disk(tester: Tester) -> None:
    group = group_of(hours=1)
    tester.run(group)
    for number in range(40):
        tester.emit(CLICKS, "a", {"id": number}, timestamp_ms=(number + 1) * HOUR_MS // 2)
    tester.stop(group)
    tester.kafka.compact("counted-ids")
    tester.advance(2 * 86_400)
    tester.kafka.compact("counted-ids")
    left = [record.value() for _, record in tester.kafka.records("counted-ids")]
    assert len([value for value in left if value is not None]) < 8
    tester.start(group)
    store = tester._of(group)[0].processor.member.assignment.tasks[0].stores["counted-ids"]  # type: ignore[union-attr]
    with store.scan() as rows:
        assert len(list(rows)) < 14
    tester.emit(CLICKS, "a", {"id": 39}, timestamp_ms=20 * HOUR_MS)
    tester.emit(CLICKS, "a", {"id": 3}, timestamp_ms=20 * HOUR_MS)
    assert tester.table(group) == {"a": 41}


def test_an_event_whose_handler_failed_was_not_accepted(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(CLICKS, "a", {"id": "x", "bad": True})
    tester.emit(CLICKS, "a", {"id": "x"})
    tester.emit(CLICKS, "a", {"id": "x"})
    assert tester.table(group) == {"a": 1}
    (letter,) = tester.dead_letters(group)
    tester.retry(group, letter)  # its event has been counted meanwhile
    assert (tester.table(group), len(tester.dead_letters(group))) == ({"a": 1}, 1)


def test_a_dead_letter_that_is_sent_again_is_remembered_from_the_time_of_its_event(tester: Tester) -> None:
    made, broken = [], True

    def handle(ctx: Any, event: Any) -> None:
        if broken and event["id"] == "late":
            raise ValueError("as ordered")
        made.append(event["id"])

    once: Once[Any] = Once("id", timedelta(hours=2))
    group: Group[str, int] = Group("counted", Input(CLICKS, handle, once=once, on_error=OnError.DEAD_LETTER))
    tester.run(group)
    tester.emit(CLICKS, "a", {"id": "early"}, timestamp_ms=HOUR_MS)
    tester.emit(CLICKS, "a", {"id": "late"}, timestamp_ms=10 * HOUR_MS)
    broken = False
    tester.retry(group, tester.dead_letters(group)[0])
    tester.emit(CLICKS, "a", {"id": "late"}, timestamp_ms=11 * HOUR_MS)
    assert made == ["early", "late"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [None, 1.5, True, ["x"]])
def test_an_event_without_an_id_fails_as_its_handler_would(kind: str, bad: Any, tester: Tester) -> None:
    group = group_of(kind)
    tester.run(group)
    tester.emit_many(
        CLICKS, [("a", {"id": 1}), ("a", {"id": bad}), ("a", {}), ("a", {"id": 2}), ("a", {"id": 1})]
    )
    assert tester.table(group) == {"a": 2}
    assert len(tester.dead_letters(group)) == 2


def test_without_an_id_a_group_that_stops_says_so(tester: Tester) -> None:
    group = group_of(on_error=OnError.STOP)
    tester.run(group)
    with pytest.raises(HandlerFailed, match=r"no id.*clicks\[0\]@0"):
        tester.emit(CLICKS, "a", {"id": None})


def test_an_id_is_the_same_as_text_and_as_a_uuid(tester: Tester) -> None:
    values = iter([UUID(int=7), str(UUID(int=7)), "7", 7, b"7", 7])
    group = group_of(by=lambda _: next(values))
    tester.run(group)
    for number in range(6):
        tester.emit(CLICKS, "a", {"id": number})
    assert tester.table(group) == {"a": 4}


def test_the_same_id_is_another_event_in_another_input_and_partition(tester: Tester) -> None:
    other = Stream[str, Any]("others", String(), Json())
    once = Once[Any](by="id", within=timedelta(hours=1))
    group: Group[str, int] = Group(
        "counted", Input(CLICKS, aggregate=Count(), once=once), Input(other, aggregate=Count(), once=once),
        Persist(Long()),
    )  # fmt: skip
    tester.run(group, partitions=2)
    for key in ("a", "b", "c", "d"):
        for stream in (CLICKS, other, CLICKS):
            tester.emit(stream, key, {"id": 1})
    assert sum(tester.table(group).values()) == 4


def test_large_batches_are_sifted_as_small_ones_also_after_a_restart(tester: Tester) -> None:
    group = group_of("aggregate")
    tester.run(group)
    ids = [str(uuid4()) for _ in range(3_000)]
    for part in (ids[:1000], ids[500:2000], ids[:2000]):
        tester.emit_many(CLICKS, clicks(part))
    tester.stop(group)
    tester.start(group, disk=False)
    for part in (ids, ids[::-1]):
        tester.emit_many(CLICKS, clicks(part))
    assert tester.table(group) == {"a": 3_000}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_among_records_that_fail_each_good_one_counts_once_and_the_failed_ones_when_they_come_again(
    kind: str, on_error: OnError, tester: Tester
) -> None:
    group = group_of(kind, on_error=on_error, kinds=FAILING)
    tester.run(group)
    ids = [str(uuid4()) for _ in range(200)]
    bad = set(ids[5::7])
    tester.emit_many(CLICKS, failing(ids, bad))
    good = [each for each in ids if each not in bad]
    assert tester.table(group) == {"a": len(good)}
    tester.emit_many(CLICKS, failing(ids, bad))  # good ones are repeats now, also among others that fail
    assert tester.table(group) == {"a": len(good)}
    letters = tester.dead_letters(group)
    assert len(letters) == (2 * len(bad) if on_error is OnError.DEAD_LETTER else 0)
    tester.emit_many(CLICKS, [*failing(ids, set()), *failing(ids, bad)])
    assert tester.table(group) == {"a": len(ids)}
    assert len(tester.dead_letters(group)) == len(letters)
    if kind != "aggregate":
        assert Counter(record.value for record in tester.records(SEEN)) == Counter(ids)


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_an_id_counts_in_the_batch_in_which_it_has_failed(
    kind: str, on_error: OnError, tester: Tester
) -> None:
    group = group_of(kind, on_error=on_error, kinds=FAILING)
    tester.run(group)
    tester.emit_many(
        CLICKS,
        [*failing("xyx", {"x"}), *failing("xyzx", set()), *failing("xw", {"x"})],
    )  # of the "x" the first two fail, the third counts, and the others repeat it
    assert tester.table(group) == {"a": 4}
    assert len(tester.dead_letters(group)) == (2 if on_error is OnError.DEAD_LETTER else 0)


# ---- the timestamp of a record that fails is part of the stream time -----------------------------------------------------


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "one by one"])
def test_the_timestamp_of_a_record_that_fails_moves_the_stream_time_as_any_other(
    kind: str,
    on_error: OnError,
    together: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    counts = []
    for bad in (False, True):
        with Tester(work_on_request=together) as tester:
            group = group_of(kind, kinds=FAILING, on_error=on_error)
            tester.run(group)
            now = int(tester.clock.now() * 1000)
            for id_, at, fails in (("1", -10 * HOUR_MS, False), ("2", 0, bad), ("1", -10 * HOUR_MS, False)):
                tester.emit(CLICKS, "a", {"id": id_, "bad": fails}, timestamp_ms=now + at)
            tester.work()
            counts.append(tester.table(group)["a"])
    assert counts == [3, 2], "the id of the first had expired when the third came"


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False], ids=["disk kept", "disk lost"])
def test_the_timestamp_of_a_record_that_fails_counts_wherever_the_process_was_killed(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    tester: Tester,
) -> None:
    group = group_of(kinds=FAILING)
    tester.run(group)
    now = int(tester.clock.now() * 1000)
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now - 10 * HOUR_MS)
    tester.crash(group, at=step)
    tester.emit(CLICKS, "a", {"id": "2", "bad": True}, timestamp_ms=now)
    tester.start(group, disk=disk)
    tester.advance(60)
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now - 10 * HOUR_MS)
    assert tester.table(group) == {"a": 2}


def test_a_record_at_which_the_process_stops_moves_the_stream_time_only_when_it_is_handled(
    tester: Tester,
) -> None:
    group = group_of(kinds=FAILING, on_error=OnError.STOP)
    tester.run(group)
    now = int(tester.clock.now() * 1000)
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now - 10 * HOUR_MS)
    with pytest.raises(HandlerFailed):
        tester.emit(CLICKS, "a", {"id": "2", "bad": True}, timestamp_ms=now)
    tester.start(group_of(kinds=FAILING, on_error=OnError.SKIP))
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now - 10 * HOUR_MS)
    assert tester.table(group) == {"a": 2}


def test_a_record_whose_key_cannot_be_read_moves_the_stream_time_if_it_has_an_id(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    now = int(tester.clock.now() * 1000)
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now - 10 * HOUR_MS)
    tester.emit_raw("clicks", b"\xff\xfe", Json().encode({"id": "2"}), partition=0, timestamp_ms=now)
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now - 10 * HOUR_MS)
    tester.emit_raw("clicks", b"a", b"no json", partition=0, timestamp_ms=now + 2 * HOUR_MS)
    tester.emit(CLICKS, "a", {"id": "1"}, timestamp_ms=now)
    assert tester.table(group) == {"a": 2}
    assert len(tester.dead_letters(group)) == 2
