from collections.abc import Iterable

import orjson
import pytest

from microbatch.committed_state import committed_state_of, decode, document
from microbatch.stores.versions import UNOWNED, CommittedState, WriteId
from streamtable.base.types import Committed, NextOffset
from streamtable.errors import InputLost, StateLost


def encode(committed_state: CommittedState, inputs: Iterable[str]) -> str:
    return orjson.dumps(document(committed_state, inputs)).decode()


COMMITTED_STATE = CommittedState(7, WriteId(5, 3))
OURS = Committed(NextOffset(10), encode(COMMITTED_STATE, ["a", "b"]))


def test_what_is_encoded_is_decoded() -> None:
    found = decode(encode(COMMITTED_STATE, ["b", "a"]))
    assert found is not None
    assert found[0] == COMMITTED_STATE
    assert found == decode(OURS.metadata)


def test_the_names_of_inputs_that_earlier_versions_have_stored_are_read() -> None:
    old = Committed(NextOffset(10), '{"token": 7, "end": [5, 3], "inputs": ["a", "b"]}')
    assert decode(old.metadata) == decode(OURS.metadata)
    with pytest.raises(InputLost, match="has read it before"):
        committed_state_of(3, {"a": old, "b": None})


def test_the_metadata_of_200_inputs_with_long_names_fit() -> None:
    assert len(encode(COMMITTED_STATE, [f"{number}".ljust(240, "x") for number in range(200)])) < 3_000


@pytest.mark.parametrize(
    "metadata", ["", "{}", "null", '{"token": 1}', '{"changelog": 1, "exact": true}', "\0"]
)
def test_metadata_of_other_clients_are_not_decoded(metadata: str) -> None:
    assert decode(metadata) is None


def test_a_partition_without_our_metadata_is_unowned() -> None:
    assert committed_state_of(0, {"a": None, "b": Committed(NextOffset(3), "by a tool")}) == UNOWNED


def test_an_input_may_be_added() -> None:
    assert committed_state_of(0, {"a": OURS, "b": OURS, "c": None}) == COMMITTED_STATE


def test_an_input_that_was_read_before_and_has_no_offset_is_refused() -> None:
    with pytest.raises(InputLost, match="has read it before") as caught:
        committed_state_of(3, {"a": OURS, "b": None})
    assert (caught.value.topic, caught.value.partition) == ("b", 3)


def test_an_offset_set_by_a_tool_beside_ours_is_refused() -> None:
    with pytest.raises(StateLost, match="was set by another tool") as caught:
        committed_state_of(3, {"a": OURS, "b": Committed(NextOffset(0), "")})
    assert (caught.value.topic, caught.value.partition) == ("b", 3)
