"""A group whose tables are computed, and its topics in Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamtable_spark.jobs.positions import TABLE
from streamtable_spark.replay import Program
from streamtable_spark.transforms.tables import GroupTable


@dataclass(frozen=True)
class Source:
    """A group whose tables are computed, and the topics that takes.

    Attributes:
        group: The name of the group, whose retries and dead letters are read.
        table: What is computed by Spark itself; None if the group's own handlers do it.
        topics: The actual names of topics that are not called as in the graph, by the graph's name.
        program: The group's own handlers; None if there is a `table`.
    """

    group: str
    table: GroupTable | None
    topics: Mapping[str, str]
    program: Program | None = None

    def topic(self, name: str) -> str:
        """Return the actual name of a topic of the graph."""
        if self.program is not None and name == self.program.loop:
            return f"{self.group}-loop"
        return self.topics.get(name, name)

    @property
    def scenario(self) -> str:
        """What the group computes, by its name in the graph."""
        return self.table.name if self.table is not None else self._program.group

    @property
    def retry(self) -> str:
        return f"{self.group}-retry"

    @property
    def dead_letters(self) -> str:
        return f"{self.group}-dead-letters"

    @property
    def loop(self) -> str | None:
        """The loop topic of the group; None if it has none."""
        return None if self.program is None or self.program.loop is None else f"{self.group}-loop"

    @property
    def inputs(self) -> list[str]:
        """The topics whose events make rows, without the retries."""
        return [self.topic(n) for n in (self._program.inputs if self.table is None else self.table.inputs)]

    @property
    def context(self) -> list[str]:
        """Further topics that are read, and whose offsets the group does not commit."""
        return [self.topic(n) for n in (self._program.lookups if self.table is None else self.table.context)]

    @property
    def joins(self) -> list[str]:
        """The tables that it joins, whose offsets it commits beside those of its inputs."""
        return [self.topic(n) for n in (self._program.joins if self.table is None else self.table.joins)]

    @property
    def joins_read(self) -> list[str]:
        """Those of them that are read as they are."""
        return self.joins if self.table is None else []

    @property
    def read(self) -> set[str]:
        """All of these: without the retries and the dead letters."""
        return {*self.inputs, *self.context, *self.joins_read}

    @property
    def compacted(self) -> list[str]:
        """The topics that are read as tables: of a row that has changed, it is enough to know the last value."""
        if self.program is None:
            return []
        return [*self.context, *(self.topic(n) for n in self.program.joins if n not in self.program.changes)]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that are computed, by the ends of their topics' names."""
        return (TABLE,) if self.table is not None else self._program.tables

    @property
    def changelogs(self) -> dict[str, str]:
        """The topics of these tables, by their names."""
        return {name: f"{self.group}-{name}" for name in self.tables}

    @property
    def compared(self) -> tuple[str, ...]:
        """Those of them that an audit compares."""
        return (TABLE,) if self.table is not None else self._program.compared

    def names(self, retries: Sequence[str]) -> dict[str, str]:
        """Return the names in the graph of all topics that are read, by their actual names."""
        program = self._program
        names = [*program.inputs, *program.joins, *program.lookups]
        return {self.topic(name): name for name in names} | dict.fromkeys(
            [self.retry, *retries], program.retry
        )

    @property
    def _program(self) -> Program:
        assert self.program is not None, "there is one or the other"
        return self.program
