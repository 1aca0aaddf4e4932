"""The state of the inputs in the metadata of committed offsets, and the refusal of recovery because of it."""

import pytest

from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.errors import InputLost
from streamtable.tables.position import TablePosition
from streamtable.tables.recovery import InputState, refuse_recreated
from streamtable.tables.seen import TOPICS_MAX, SeenInputs, recreated

IDS = {"in": "id-1", "retry": "id-2"}
BOTH_READ = {"in": NextOffset(5), "retry": NextOffset(1)}


def at(
    offset: int, read: dict[str, NextOffset], *, end: int = 0, topic_id: str, high: int = 10
) -> InputState:
    seen = SeenInputs(end, SeenInputs.ids_of(IDS, read))
    metadata = TablePosition(0, exact=True, seen=seen).encode()
    return InputState(Committed(NextOffset(offset), metadata), Watermarks(0, high), topic_id=topic_id)


def never(topic_id: str) -> InputState:
    return InputState(None, Watermarks(0, 10), topic_id=topic_id)


def test_what_was_seen_survives_the_metadata() -> None:
    seen = SeenInputs(17, SeenInputs.ids_of(IDS, BOTH_READ))
    metadata = TablePosition(3, exact=False, seen=seen).encode()
    assert TablePosition.decode(metadata) == TablePosition(3, exact=False, seen=seen)
    assert SeenInputs.decode(metadata) == seen
    assert seen.knows("in")
    assert seen.is_other("in", "id-9")
    assert not seen.is_other("in", "id-1")
    assert not seen.is_other("elsewhere", "id-9")


@pytest.mark.parametrize(
    "metadata", ["", "null", "[]", '{"changelog":1,"exact":true}', '{"seen":[1]}', '{"seen":[1,"abc"]}']
)
def test_metadata_of_tools_and_of_older_versions_say_nothing_of_the_inputs(metadata: str) -> None:
    assert SeenInputs.decode(metadata) is None


def test_metadata_of_hundreds_of_inputs_fit_into_what_kafka_accepts() -> None:
    topics = {f"{'a-long-name-' * 20}{number}": f"id-{number}" for number in range(500)}
    ids = SeenInputs.ids_of(topics, dict.fromkeys(topics, NextOffset(1)))
    assert len(ids) == TOPICS_MAX
    assert len(TablePosition(1 << 62, exact=True, seen=SeenInputs(1 << 62, ids)).encode()) < 2_000


def test_tools_find_the_inputs_that_were_created_again_also_those_whose_offsets_the_broker_forgot() -> None:
    metadata = TablePosition(0, exact=True, seen=SeenInputs(9, SeenInputs.ids_of(IDS, BOTH_READ))).encode()
    first, second = TopicPartition("in", 0), TopicPartition("retry", 0)
    both = {first: Committed(NextOffset(5), metadata), second: Committed(NextOffset(1), metadata)}
    assert recreated(both, {**IDS, "elsewhere": "id-9"}) == {}
    found = recreated(both, {"in": "id-9", "retry": "id-2"})
    assert found.keys() == {"in"}
    assert "id-9" in str(found["in"])
    assert found["in"].digest_read in str(found["in"])
    assert recreated({second: both[second]}, {"in": "id-9", "retry": "id-2"}) == found
    # A tool has set it since, and knows of the new topic: what the other one says is of before.
    accepted = {first: Committed(NextOffset(0)), second: both[second]}
    assert recreated(accepted, {"in": "id-9", "retry": "id-2"}) == {}


def test_inputs_that_are_the_topics_that_they_were_are_accepted() -> None:
    refuse_recreated(
        0,
        {
            "in": at(5, BOTH_READ, end=10, topic_id="id-1"),
            "retry": at(1, BOTH_READ, topic_id="id-2"),
            "new": never("id-3"),
        },
    )


def test_an_offset_of_an_earlier_topic_of_the_name_is_refused() -> None:
    with pytest.raises(InputLost, match="an earlier topic of this name") as refused:
        refuse_recreated(3, {"in": at(5, BOTH_READ, topic_id="id-9")})
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == ("in", 3, 5)


def test_an_input_whose_offset_has_gone_is_refused_if_the_others_know_that_it_was_read() -> None:
    with pytest.raises(InputLost, match="has read it before"):
        refuse_recreated(0, {"in": never("id-9"), "retry": at(0, {"in": NextOffset(5)}, topic_id="id-2")})


def test_an_input_of_which_nothing_was_read_may_be_made_again() -> None:
    read = {"in": NextOffset(5), "retry": NextOffset(0)}
    refuse_recreated(0, {"in": at(5, read, topic_id="id-1"), "retry": never("id-9")})


def test_a_topic_that_ends_before_the_end_that_was_seen_is_refused() -> None:
    with pytest.raises(InputLost, match="ended at 11 when the group last committed, and ends at 10 now"):
        refuse_recreated(0, {"in": at(5, BOTH_READ, end=11, topic_id="id-1", high=10)})


def test_an_offset_that_a_tool_has_set_is_accepted_whatever_the_others_say() -> None:
    by_tool = InputState(Committed(NextOffset(0), ""), Watermarks(0, 10), topic_id="id-9")
    refuse_recreated(0, {"in": by_tool, "retry": at(1, BOTH_READ, topic_id="id-2")})
