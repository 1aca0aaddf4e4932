"""A group whose tables are computed, and its topics in Kafka."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streamtable_spark.replay import Program
from streamtable_spark.transforms.tables import GroupTable


@dataclass(frozen=True)
class Source:
    """A group whose tables are computed, and the topics that this needs.

    Attributes:
        group: The name of the group, whose retries and dead letters are read.
        computes: The computation of its tables: a native query of Spark, or the group's own handlers.
        topics: The actual names of topics that differ from those in the graph, by the name in the graph.
    """

    group: str
    computes: GroupTable | Program
    topics: Mapping[str, str] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        """Return the actual name of a topic of the graph."""
        return f"{self.group}-loop" if name == self.computes.loop else self.topics.get(name, name)

    @property
    def program(self) -> Program | None:
        """The group's own handlers; None if Spark itself computes the table."""
        return self.computes if isinstance(self.computes, Program) else None

    @property
    def retry(self) -> str:
        return f"{self.group}-retry"

    @property
    def dead_letters(self) -> str:
        return f"{self.group}-dead-letters"

    @property
    def loop(self) -> str | None:
        """The loop topic of the group; None if it has none."""
        return None if self.computes.loop is None else self.topic(self.computes.loop)

    @property
    def inputs(self) -> list[str]:
        """The topics whose events make rows, without the retries."""
        return [self.topic(name) for name in self.computes.inputs]

    @property
    def context(self) -> list[str]:
        """Further topics that are read, and whose offsets the group does not commit."""
        return [self.topic(name) for name in self.computes.context]

    @property
    def joins(self) -> list[str]:
        """The tables that the group joins, whose offsets it commits with its inputs' offsets."""
        return [self.topic(name) for name in self.computes.joins]

    @property
    def joins_read(self) -> list[str]:
        """The joined tables whose records are replayed; none if Spark itself computes the table."""
        return [] if self.program is None else self.joins

    @property
    def read(self) -> set[str]:
        """All topics that are read, without the retries and the dead letters."""
        return {*self.inputs, *self.context, *self.joins_read}

    @property
    def compacted(self) -> list[str]:
        """The topics that are read as tables: the last value of each row is enough."""
        if self.program is None:
            return []
        return [*self.context, *(self.topic(n) for n in self.program.joins if n not in self.program.changes)]

    @property
    def changelogs(self) -> dict[str, str]:
        """The topics of the tables that are computed, by the tables' names."""
        return {name: f"{self.group}-{name}" for name in self.computes.tables}

    def former_loops(self, topics: Collection[str]) -> list[str]:
        """Return the loops, among topics that are read, of the groups that its table was rebuilt from."""
        groups = [topic.removesuffix("-retry") for topic in topics if topic.endswith("-retry")]
        loops = {f"{group}-loop" for group in groups} - {self.loop}
        return sorted(loops.intersection(topics)) if self.loop is not None else []

    def names(self, topics: Collection[str] = ()) -> dict[str, str]:
        """Return the names in the graph of all topics that are read, by their actual names.

        Args:
            topics: The retries and loops that are read, also of the groups that its table was rebuilt from.
        """
        names = [*self.computes.inputs, *self.computes.joins, *self.computes.context]
        own = {self.topic(name): name for name in names}
        retry = self.retry if self.program is None else self.program.retry
        loops = {topic: own[self.loop] for topic in self.former_loops(topics) if self.loop is not None}
        return dict.fromkeys([self.retry, *topics], retry) | loops | own
