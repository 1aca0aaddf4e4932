"""The record of the kinds of rows that a partition has kept, in a row of the library's own beside them.

Versions of a program keep different kinds, and read them with different codecs. As with the states of a group, a version
that would misread rows is refused (`StateMeaningChanged`), and so is one with a kind that lacks records which a version
without it has handled (`StateLost`).

The record is never behind the rows: with embedded rows it is in the commit of a version's first batch, and not in an earlier
commit, as a table that holds anything needs committed offsets; in a central store it is written before the first batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from microbatch.declaration import DeclaredBatch
from microbatch.stores.port import OWN
from streamtable.base.decoding import codec_name
from streamtable.base.evolution import evolved, without_schemas
from streamtable.base.types import Committed
from streamtable.errors import StateLost, StateMeaningChanged


@dataclass(frozen=True)
class Kinds:
    """The kinds of rows of a version of a program that takes over a partition.

    Attributes:
        group: The graph.
        partition: The number of the partition.
        committed: The stable offsets of its inputs.
    """

    group: DeclaredBatch
    partition: int
    committed: Mapping[str, Committed | None]

    @property
    def key(self) -> bytes:
        """The key of the record's row."""
        return OWN + b"kinds/%d" % self.partition

    def record(self, before: bytes | None) -> bytes:
        """Return the record that this version continues with.

        Args:
            before: The record of the version that has taken over the partition last; None if there is none.

        Raises:
            StateLost: A kind lacks records that the group has handled.
            StateMeaningChanged: The codec of a kind does not read the rows that are there.
        """
        recorded: Mapping[str, Any] = orjson.loads(before or b"{}")
        offsets = {topic: 0 if each is None else each.next_offset for topic, each in self.committed.items()}
        now: dict[str, Any] = {}
        for name, rows in self.group.rows.items():
            declared = codec_name(rows.value)
            kind = recorded.get(name, {"means": declared, "left": {}})
            means, reason = evolved(kind["means"], declared)
            if reason:
                raise StateMeaningChanged(
                    state=name,
                    group=self.group.name,
                    recorded=without_schemas(kind["means"]),
                    declared=without_schemas(declared),
                    topic=self.group.table.name if self.group.persist else "",
                    reason=reason,
                )
            for topic, seen in kind["left"].items():
                if offsets.get(topic, 0) > seen:
                    raise StateLost(
                        f"the group has kept rows {name!r}, and a version of the program without them has handled "
                        f"{topic!r} up to offset {offsets[topic]}: these rows lack its records from offset {seen} on. "
                        "Give them a new name, which begins empty; or start the group from the beginning of its inputs, "
                        "with an empty table or tenant"
                    ).at(topic, self.partition, seen)
            left = {topic: seen for topic, seen in kind["left"].items() if topic not in offsets}
            now[name] = {"means": means, "left": left}
        for name in recorded.keys() - now.keys():
            now[name] = {**recorded[name], "left": offsets | recorded[name]["left"]}
        return orjson.dumps(now, option=orjson.OPT_SORT_KEYS)
