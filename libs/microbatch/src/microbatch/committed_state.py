"""A partition's committed state in the metadata of its committed offsets, and whether these offsets belong together."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from microbatch.stores.versions import UNOWNED, CommittedState, WriteId
from streamtable.base.types import Committed
from streamtable.errors import InputLost, StateLost
from streamtable.tables.seen import digest_of

_MARK = ">"  # no name of a topic has it


def document(committed_state: CommittedState | None, inputs: Iterable[str]) -> Mapping[str, Any]:
    """Return the JSON that is committed with each offset.

    Args:
        committed_state: The partition's committed state; None if rows are plain.
        inputs: All topics that are committed with it.
    """
    if committed_state is None:
        return {"plain": True}
    # Names of topics may be long, and Kafka keeps 4 KB with an offset.
    names = sorted(map(_digest, inputs))
    return {"token": committed_state.epoch, "end": list(committed_state.end), "inputs": names}


def decode(metadata: str) -> tuple[CommittedState, frozenset[str]] | None:
    """Decode the committed state and the digests of the inputs; None for metadata of other tools.

    The stored key of the epoch is `token`. Earlier versions have stored the names of the inputs.
    """
    try:
        match orjson.loads(metadata):
            case {"token": int(epoch), "end": [int(of), int(batch)], "inputs": [*inputs]}:
                return CommittedState(epoch, WriteId(of, batch)), frozenset(map(_digest, map(str, inputs)))
    except orjson.JSONDecodeError:
        return None
    return None


def _digest(topic: str) -> str:
    return topic if topic.startswith(_MARK) else _MARK + digest_of(topic)


def over_central_store(metadata: str) -> bool:
    """Return whether an offset was committed with rows in a central store."""
    return decode(metadata) is not None or metadata.startswith('{"plain":true')


def refuse_offsets(
    partition: int, committed: Mapping[str, Committed | None], are: Callable[[str], object], reason: str
) -> None:
    """Raise `StateLost` if the metadata of a committed offset are of a kind. `reason`: the message, with {} for the offset."""
    for topic, each in committed.items():
        if each is not None and are(each.metadata):
            raise StateLost(reason.format(each.next_offset)).at(topic, partition, each.next_offset)


def committed_state_of(partition: int, committed: Mapping[str, Committed | None]) -> CommittedState:
    """Return the state in the committed offsets of a partition's inputs; `UNOWNED` if there is none of this library.

    Raises:
        StateLost: An offset was set by another tool, and the others were not.
        InputLost: A committed offset has disappeared, and the others have not.
    """
    found = {topic: decode(each.metadata) for topic, each in committed.items() if each is not None}
    ours = {topic: each for topic, each in found.items() if each is not None}
    if not ours:
        return UNOWNED
    committed_state, inputs = max(ours.values(), key=lambda each: (each[0].epoch, each[0].end))
    for topic in (each for each in committed if _digest(each) in inputs):
        if topic not in found:
            raise InputLost(
                "the group has no committed offset for this input, but has read it before: the topic was deleted and "
                "recreated, or the offset was deleted. Starting over could count records twice that the central store "
                "has. Set the group's offset for this input, or clear the tenant and start from the beginning"
            ).at(topic, partition)
        if ours.get(topic) != (committed_state, inputs):
            raise StateLost(
                "the offset of this input was set by another tool, those of the others were not: the rows in the central "
                "store do not match. Clear the tenant and set all offsets of the group, or give it another tenant"
            ).at(topic, partition)
    return committed_state
