"""Topics of a test that two libraries share."""

from collections.abc import Mapping
from typing import Any

from tests.system.bench import SECONDS_MAX, Bench, until

from streamtable import App, Emitter, Group, Guarantee, Stream, Table
from streamtable.base.ports import TopicDescription

PARTITIONS = 4
KEYS = [f"user-{number}" for number in range(60)]
COUNTS: Mapping[str, int] = {key: number % 5 + 1 for number, key in enumerate(KEYS)}


class Shared(Bench):
    """A bench with topics for another library's program."""

    def topic(self, name: str, **config: str) -> str:
        """Create a topic, and return its whole name."""
        full = self.name(name)
        self.cluster.create_topics([TopicDescription(full, PARTITIONS, 1, config)])
        until(lambda: self.cluster.topics([full]), f"{name} exists")
        return full

    def emit(self, stream: Stream[str, str], events: Mapping[str, int]) -> None:
        """Emit so many events of each key."""
        with Emitter(stream, self.kafka) as emitter:
            for key, times in events.items():
                for number in range(times):
                    emitter.emit(key, f"event {number}")

    def keep(self, group: Group[str, Any], guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> None:
        """Let our processor keep the counts of `COUNTS` in the group's table."""
        self.create(group, PARTITIONS)
        self.emit(group.inputs[0].stream, COUNTS)
        self.work_off(group, state=group.name, guarantee=guarantee)

    def values(self, stream: Stream[str, str]) -> dict[str, str]:
        """The last value of each key."""
        records = self.read(stream.name)
        return {stream.key.decode(r.key): stream.value.decode(r.value) for r in records if r.key and r.value}

    def rows_of(self, table: Table[str, Any], complete: int) -> dict[str, Any]:
        """Return the rows of our view, as soon as it holds this many rows with their final values."""
        with App(self.kafka, self.folder / "views", name=table.name).view(table) as view:
            view.wait_ready(SECONDS_MAX)
            until(
                lambda: sum(map(_number, dict(view.iterate()).values())) >= complete,
                f"{table.name} is complete",
            )
            return {key: row for key in KEYS if (row := view.get(key)) is not None}


def _number(row: Any) -> int:
    return int(row["count"] if isinstance(row, dict) else row)
