"""Records of topics between the groups of a flow are deleted once they are committed."""

from typing import Any

import pytest

from streamtable import Json, Stream, String
from streamtable.errors import InputLost
from streamtable.flow import Flow
from streamtable_testing import Tester

WORDS: Stream[str, Any] = Stream("words", String(), Json())


def program() -> Flow:
    flow = Flow("f")
    flow.stream(WORDS).group_by("by", lambda value: str(value["k"]), key=String()).count("n")
    return flow


def left(tester: Tester) -> int:
    return len(tester.kafka.records("f-by"))


def test_a_flow_purges_the_topics_between_its_groups_behind_its_commits() -> None:
    with Tester(purge=True) as tester:
        flow = program()
        first, second = flow.groups
        tester.run(flow)
        for number in range(10):
            tester.emit(WORDS, "x", {"k": number % 2})
        tester.stop(second)
        tester.emit(WORDS, "x", {"k": 0})
        tester.advance(60)
        assert left(tester) == 11  # nobody purges for a reader that is away
        tester.start(second)
        tester.advance(31)
        assert left(tester) == 0
        assert len(tester.records(WORDS)) == 11  # the source is read by others too
        tester.crash(second)
        tester.start(second, disk=False)
        tester.emit(WORDS, "x", {"k": 1})
        assert dict(tester.table(second, second.states[0])) == {"0": 6, "1": 6}
        assert second.name != first.name


def test_a_tester_keeps_the_records_unless_it_is_asked_to_purge(tester: Tester) -> None:
    tester.run(program())
    tester.emit(WORDS, "x", {"k": 1})
    tester.advance(120)
    assert left(tester) == 1


def test_a_group_whose_offsets_are_gone_does_not_begin_in_the_middle_of_what_it_has_purged() -> None:
    with Tester(purge=True) as tester:
        flow = program()
        second = flow.groups[1]
        tester.run(flow)
        tester.emit(WORDS, "x", {"k": 1})
        tester.advance(31)
        tester.stop(second)
        tester.kafka.group(second.name).offsets.committed.clear()
        with pytest.raises(InputLost, match="to latest --empty-table") as refused:
            tester.start(second, disk=False)
        assert refused.value.topic == "f-by"
