from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from streamtable.base.event_time import InputTime
from streamtable.base.ports import TopicInfo
from streamtable.base.types import Committed, NextOffset, Watermarks
from streamtable.errors import InputLost, StateLost
from streamtable.tables.kept import OWN
from streamtable.tables.position import LocalPosition, TablePosition
from streamtable.tables.recovery import (
    Changelog,
    InputState,
    Load,
    RecoveryPlan,
    plan,
    plan_join,
    why_discard,
)

NOW = 1_000_000.0
DAY = 86_400


def committed(offset: int, changelog: int | None = None, *, exact: bool = True) -> Committed:
    metadata = "" if changelog is None else TablePosition(changelog, exact).encode()
    return Committed(NextOffset(offset), metadata)


def at(offset: int, changelog: int | None = None, *, high: int = 1_000, exact: bool = True) -> InputState:
    return InputState(committed(offset, changelog, exact=exact), Watermarks(0, high))


def never(low: int = 0, high: int = 1_000, start: Any = "earliest") -> InputState:
    return InputState(None, Watermarks(low, high), start)


def local(
    changelog: int, *, topic_id: str = "id-1", age: float = 0, begins: int | None = None
) -> LocalPosition:
    return LocalPosition(changelog, topic_id, NOW - age, begins=begins)


@pytest.fixture
def changelog(topic_info: Callable[..., TopicInfo]) -> Callable[..., Changelog]:
    def make(high: int, low: int = 0) -> Changelog:
        return Changelog(topic_info("g-table"), Watermarks(low, high))

    return make


def decide(
    inputs: dict[str, InputState],
    log: Changelog | None,
    store: LocalPosition | None = None,
    named: Mapping[str, tuple[Changelog, LocalPosition | None]] = MappingProxyType({}),
    *,
    exactly_once: bool = True,
) -> RecoveryPlan:
    own = {} if log is None else {OWN: (log, store)}
    return plan(3, inputs, own | dict(named), exactly_once=exactly_once, now=NOW)


Make = Callable[..., Changelog]


def test_recovery_ends_at_the_position_in_the_metadata_not_at_the_end_of_the_log(changelog: Make) -> None:
    todo = decide({"in": at(50, 20)}, changelog(high=25), local(10))
    assert todo == RecoveryPlan(
        {"in": NextOffset(50)}, uncommitted=False, loads={OWN: Load(read_from=10, read_to=20)}
    )


def test_of_several_inputs_the_largest_position_counts(changelog: Make) -> None:
    todo = decide({"a": at(50, 20), "b": at(7, 22), "c": at(7, 3)}, changelog(high=25), local(10))
    assert todo.loads[OWN].read_to == 22


def test_a_copy_that_is_there_already_has_nothing_to_read(changelog: Make) -> None:
    todo = decide({"in": at(50, 20)}, changelog(high=25), local(20))
    assert todo.loads[OWN].read_from == todo.loads[OWN].read_to == 20


def test_an_empty_disk_is_read_from_the_beginning(changelog: Make) -> None:
    assert decide({"in": at(50, 20)}, changelog(high=25)).loads[OWN].read_from == 0


@pytest.mark.parametrize(
    ("inputs", "exactly_once"),
    [
        ({"in": at(50)}, True),
        ({"a": at(50, 20), "b": at(50)}, True),
        ({"in": at(50, 20, exact=False)}, True),
        ({"in": at(50, 20)}, False),
        ({"in": at(50, 20, exact=False)}, False),
    ],
    ids=["set by a tool", "one set by a tool", "was at least once", "is at least once", "both"],
)
def test_without_an_exact_position_recovery_goes_to_the_high_watermark(
    inputs: dict[str, InputState], exactly_once: bool, changelog: Make  # noqa: FBT001 - a parameter of the test
) -> None:  # fmt: skip
    todo = decide(inputs, changelog(high=25), local(10), exactly_once=exactly_once)
    assert todo.loads[OWN].read_to == 25
    assert todo.repeats  # the rows behind the position may be of records whose outputs were not written


def test_after_exact_commits_no_record_is_handled_again_over_its_own_rows(changelog: Make) -> None:
    assert not decide({"in": at(50, 20)}, changelog(high=25), local(10)).repeats


def test_offsets_that_a_tool_has_set_go_with_an_empty_changelog(changelog: Make) -> None:
    assert decide({"in": at(50)}, changelog(high=0)).loads[OWN] == Load(read_from=0, read_to=0)


def test_a_new_partition_begins_where_its_input_says(changelog: Make) -> None:
    todo = decide({"a": never(5, 90), "b": never(5, 90, "latest")}, changelog(high=0))
    assert todo == RecoveryPlan(
        {"a": NextOffset(5), "b": NextOffset(90)}, uncommitted=True, loads={OWN: Load()}
    )


def test_an_input_that_was_added_is_committed_before_its_first_record(changelog: Make) -> None:
    todo = decide({"a": at(50, 20), "b": never(5, 90, "latest")}, changelog(high=25), local(20))
    assert todo.uncommitted
    assert todo.next_offsets == {"a": 50, "b": 90}


def test_a_changelog_without_any_offset_stops_and_says_what_would_happen(changelog: Make) -> None:
    with pytest.raises(StateLost, match=r"count everything twice.*\(g-table\[3\]\)"):
        decide({"in": never()}, changelog(high=25), local(20))


@pytest.mark.parametrize("offset", [4, 101])
def test_an_input_that_no_longer_holds_the_committed_offset_stops_with_its_place(
    offset: int, changelog: Make
) -> None:
    state = InputState(committed(offset, 0), Watermarks(5, 100))
    with pytest.raises(InputLost, match="holds 5 to 100") as caught:
        decide({"in": state}, changelog(high=0))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("in", 3, offset)


@pytest.mark.parametrize("offset", [5, 100])
def test_the_first_record_and_the_end_of_an_input_are_good_places_to_go_on(
    offset: int, changelog: Make
) -> None:
    state = InputState(committed(offset, 0), Watermarks(5, 100))
    assert decide({"in": state}, changelog(high=0)).next_offsets == {"in": offset}


def test_a_changelog_that_ends_before_the_committed_position_stops(changelog: Make) -> None:
    with pytest.raises(StateLost, match="position 20, but its changelog ends at 19"):
        decide({"in": at(50, 20)}, changelog(high=19))


def test_a_changelog_whose_needed_records_were_deleted_stops(changelog: Make) -> None:
    with pytest.raises(StateLost, match="records 10 to 12"):
        decide({"in": at(50, 20)}, changelog(high=25, low=12), local(10))


def test_deleted_records_that_the_copy_holds_already_do_not_matter(changelog: Make) -> None:
    assert decide({"in": at(50, 20)}, changelog(high=25, low=12), local(15)).loads[OWN].read_from == 15


def test_deleted_records_that_no_commit_needs_do_not_matter(changelog: Make) -> None:
    todo = decide({"in": at(50, 10)}, changelog(high=25, low=12), local(10))
    assert (todo.loads[OWN].discard, todo.loads[OWN].read_from, todo.loads[OWN].read_to) == (None, 12, 12)


def test_a_changelog_that_is_not_compacted_is_read_from_where_it_begins(
    topic_info: Callable[..., TopicInfo],
) -> None:
    log = Changelog(replace(topic_info("g-table"), compacted=False), Watermarks(12, 25))
    assert decide({"in": at(50, 20)}, log, local(10)).loads[OWN] == Load(read_from=12, read_to=20)


def test_a_single_change_without_any_offset_stops_too(changelog: Make) -> None:
    with pytest.raises(StateLost, match="holds 1 changes"):
        decide({"in": never()}, changelog(high=1))


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (local(26), "beyond the changelog's end 25"),
        (local(10, topic_id="id-0"), "an earlier topic of the same name"),
        (local(10, age=DAY + 1), "deleted keys would come back"),
    ],
)
def test_a_copy_that_must_not_be_used_is_discarded_and_the_table_read_again(
    store: LocalPosition, reason: str, changelog: Make
) -> None:
    todo = decide({"in": at(50, 20)}, changelog(high=25), store)
    assert reason in (todo.loads[OWN].discard or "")
    assert (todo.loads[OWN].read_from, todo.loads[OWN].read_to) == (0, 20)


@pytest.mark.parametrize("store", [local(25), local(10, age=DAY), local(10, age=-100)])
def test_a_copy_is_kept_at_the_bounds(store: LocalPosition, changelog: Make) -> None:
    assert why_discard(changelog(high=25), store, NOW) is None


def test_a_group_without_a_table_only_needs_to_know_where_to_go_on() -> None:
    todo = RecoveryPlan({"in": NextOffset(50)}, uncommitted=False, repeats=True)  # a tool has set the offset
    assert decide({"in": at(50)}, None) == todo
    assert decide({"in": never()}, None).uncommitted


def test_an_input_whose_offset_is_gone_is_refused_if_the_local_copy_has_applied_some_of_it(
    changelog: Make,
) -> None:
    def store(**inputs: int) -> LocalPosition:
        return LocalPosition(20, "id-1", NOW, inputs=inputs)

    inputs = {"in": never(), "retry": at(0, 20)}
    with pytest.raises(InputLost, match=r"no committed offset .* before offset 50.*\(in\[3\]\)"):
        decide(inputs, changelog(high=25), store(**{"in": 50, "retry": 0}))
    # An input that was added to the graph, or that had no records yet, begins.
    for known in (store(retry=0), store(**{"in": 0, "retry": 0}), None):
        assert decide(inputs, changelog(high=25), known).next_offsets == {"in": 0, "retry": 0}


# ---- joined tables ---------------------------------------------------------------------------------------------------


def joined(
    log: Changelog, store: LocalPosition | None = None, at: int | None = None, changes: Any = None
) -> Load:
    return plan_join(3, log, store, None if at is None else committed(at), changes, NOW)


@pytest.mark.parametrize("at", [None, 3, 99])
def test_a_joined_table_is_loaded_to_its_end_whatever_was_committed(at: int | None, changelog: Make) -> None:
    assert joined(changelog(high=25), at=at) == Load(read_to=25)
    assert joined(changelog(high=25), local(10), at) == Load(read_from=10, read_to=25)


def test_a_joined_copy_is_kept_while_its_topic_begins_where_it_did(changelog: Make) -> None:
    todo = joined(changelog(high=25, low=5), local(10, begins=5))
    assert todo == Load(read_from=10, read_to=25)


def test_a_joined_copy_at_the_very_beginning_of_its_topic_is_kept(changelog: Make) -> None:
    assert joined(changelog(high=25, low=5), local(5, begins=5)) == Load(read_from=5, read_to=25)


def test_a_joined_copy_from_before_the_first_deletion_is_loaded_again(changelog: Make) -> None:
    assert joined(changelog(high=25, low=1), local(10)).discard is not None, "it was loaded from offset 0"


@pytest.mark.parametrize("at", [5, 20, 25])
def test_where_changes_are_handled_it_is_loaded_to_the_committed_offset_and_not_beyond(
    at: int, changelog: Make
) -> None:
    todo = joined(changelog(high=25, low=5), at=at, changes="latest")
    assert todo == Load(read_from=5, read_to=at, exactly=True)


@pytest.mark.parametrize(("at", "why"), [(4, "deleted .retention"), (26, "lost its end")])
def test_where_changes_are_handled_a_committed_offset_outside_of_the_topic_is_refused(
    at: int, why: str, changelog: Make
) -> None:
    with pytest.raises(InputLost, match=why):
        joined(changelog(high=25, low=5), at=at, changes="latest")
    assert joined(changelog(high=25, low=5), at=at) == Load(read_from=5, read_to=25)


def test_a_new_group_takes_the_rows_as_known_or_handles_them_from_the_first(changelog: Make) -> None:
    log = changelog(high=25, low=5)
    assert joined(log, changes="latest") == Load(read_from=5, read_to=25, exactly=True)
    assert joined(log, changes="earliest") == Load(read_from=5, read_to=5, exactly=True)


def test_a_joined_copy_beyond_the_committed_offset_is_thrown_away_where_changes_are_handled(
    changelog: Make,
) -> None:
    todo = joined(changelog(high=25), local(21), 20, "latest")
    assert "at 21, beyond 20, where the group continues" in (todo.discard or "")
    assert (todo.read_from, todo.read_to) == (0, 20)
    assert joined(changelog(high=25), local(21), 20).discard is None


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (local(10, topic_id="other"), "earlier topic"),
        (local(30), "beyond the changelog's end"),
        (local(10, age=2 * DAY), "tombstones"),
        (local(3), "the topic begins at 5 now"),
        (local(10, begins=4), "rows whose records were deleted would stay"),
        (local(10), "rows whose records were deleted would stay"),
    ],
)
def test_a_joined_copy_that_may_lie_is_loaded_again(
    store: LocalPosition, reason: str, changelog: Make
) -> None:
    todo = joined(changelog(high=25, low=5), store)
    assert reason in (todo.discard or "")
    assert (todo.read_from, todo.read_to) == (5, 25)


# ---- event time ------------------------------------------------------------------------------------------------------


def test_the_event_time_comes_back_with_each_input_that_has_one(changelog: Make) -> None:
    timed = TablePosition(20, exact=True, time=InputTime(900, 700)).encode()
    inputs = {"a": with_named(50, metadata=timed), "b": at(50, 20), "c": never(), "d": at(50, None)}
    assert decide(inputs, changelog(high=25), local(10)).times == {"a": InputTime(900, 700)}


# ---- named tables ----------------------------------------------------------------------------------------------------


def with_named(offset: int, *, metadata: str) -> InputState:
    return InputState(Committed(NextOffset(offset), metadata), Watermarks(0, 1_000))


def test_a_named_table_is_loaded_to_its_own_position(changelog: Make) -> None:
    metadata = TablePosition(20, exact=True, tables={"ids": 7}).encode()
    named = {"ids": (changelog(high=9), local(3))}
    todo = decide({"in": with_named(50, metadata=metadata)}, changelog(high=25), local(10), named=named)
    assert todo.loads == {OWN: Load(None, 10, 20), "ids": Load(None, 3, 7)}


@pytest.mark.parametrize("high", [0, 9])
def test_a_named_table_that_no_offset_names_yet_is_loaded_to_its_end(high: int, changelog: Make) -> None:
    todo = decide({"in": at(50, 20)}, changelog(high=25), named={"ids": (changelog(high=high), None)})
    assert todo.loads["ids"] == Load(None, 0, high)


def test_a_group_without_a_table_recovers_its_named_ones(changelog: Make) -> None:
    metadata = TablePosition(0, exact=True, tables={"handled": 4}).encode()
    todo = decide(
        {"in": with_named(50, metadata=metadata)}, None, named={"handled": (changelog(high=9), None)}
    )
    assert todo.loads == {"handled": Load(None, 0, 4)}


def test_a_named_table_with_rows_but_no_offsets_is_refused(changelog: Make) -> None:
    with pytest.raises(StateLost, match="no committed offset"):
        decide({"in": never()}, changelog(high=0), named={"ids": (changelog(high=3), None)})


def test_a_named_table_that_ends_before_its_committed_position_is_refused(changelog: Make) -> None:
    metadata = TablePosition(20, exact=True, tables={"ids": 7}).encode()
    with pytest.raises(StateLost, match="position 7"):
        decide(
            {"in": with_named(50, metadata=metadata)},
            changelog(high=25),
            named={"ids": (changelog(high=5), None)},
        )
