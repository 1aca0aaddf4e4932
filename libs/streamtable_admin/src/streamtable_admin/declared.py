"""Topics, groups and users as a file declares them, for example `infra/topics.yaml`.

    defaults: {partitions: 12, replication: 1}
    topics:
      user-clicks: {config: {retention.ms: 604800000}}
    groups:
      click-count: {inputs: [user-clicks]}
      user-status: {inputs: [logins], joins: [click-count-table], loop: true, visits: true}
      invoices: {inputs: [orders], joins: [prices-table], once: true, changes: true}
      visitors: {inputs: [user-clicks], table: false, states: [sessions]}
    users:
      click-count-emitter: {writes: [user-clicks]}
      click-count-processor: {runs: [click-count]}

A group implies its changelog, dead-letter and retry topic, with as many partitions as its inputs, and the topics of its
loop, visits, ids, handled rows and state tables where it declares them. Outputs and lookup tables are topics like others. Users matter
where Kafka has authentication and ACLs.
"""

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from streamtable.base.ports import TopicDescription
from streamtable.base.topics import DEAD_LETTER_CONFIG, TABLE_CONFIG, legal_name
from streamtable.errors import ConfigurationError
from streamtable.graph.companion import TIMER_TABLES
from streamtable.graph.group import HANDLED, IDS, STATES
from streamtable.graph.state import RESERVED
from streamtable.graph.topic_settings import INNER_CONFIG

USER_NAME = r"^[A-Za-z0-9._-]{1,100}$"  # what can stand in a file name, and in a broker's settings, as it is


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value


Partitions = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Replication = Annotated[int, Field(ge=1, le=100, strict=True)]
Config = dict[str, Annotated[str, BeforeValidator(_text)]]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Defaults(_Strict):
    partitions: Partitions = 12
    replication: Replication = 1


class DeclaredTopic(_Strict):
    partitions: Partitions | None = None
    replication: Replication | None = None
    config: Config = {}


class DeclaredGroup(_Strict):
    """A group of processors.

    Attributes:
        inputs: its topics, all with the same number of partitions.
        purges: its inputs that no others read, as between the groups of a flow: it deletes records that it has handled.
        joins: tables that it joins, of other groups (`<group>-table`, `<group>-<state>`) or topics declared as compacted,
            with as many.
        lookups: tables that each process holds a copy of; named for the rights of its users only, as the next.
        outputs: topics that it writes to.
        table: whether it persists one.
        table_config: settings of the table's topic, over the usual ones.
        loop: whether it has a `Loop`: `<group>-loop`.
        visits: whether it has a `Visit`: `<group>-visits`.
        once: whether events of an input count once: `<group>-ids`.
        changes: whether it handles `Changes` of a table that it joins: `<group>-handled`.
        states: names of its state tables: `<group>-<state>` for each, and `<group>-states`.
        timers: clocks of its timers: `<group>-timers` for `event`, `<group>-wall-timers` for `wall`, `<group>-calls` for `call`,
            the calls of APIs, and `<group>-states`.
        rows_evolve: whether the schema of its table's rows is recorded, as `Typed` does: `<group>-states`.
    """

    inputs: list[str] = []
    purges: list[str] = []
    joins: list[str] = []
    lookups: list[str] = []
    outputs: list[str] = []
    table: bool = True
    table_config: Config = {}
    loop: bool = False
    visits: bool = False
    once: bool = False
    changes: bool = False
    states: list[str] = []
    timers: list[Literal["event", "wall", "call"]] = []
    rows_evolve: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "DeclaredGroup":
        if not (self.inputs or self.joins or self.loop):
            raise ValueError("it reads nothing: at least 1 of inputs, joins and loop: true is needed")
        if self.visits and not self.table:
            raise ValueError("visits: true and table: false: there would be no rows to visit")
        if self.changes and not self.joins:
            raise ValueError("changes: true and no joins: there would be no table whose changes it handles")
        if self.once and not self.inputs:
            raise ValueError("once: true and no inputs: there would be no events to count once")
        if others := sorted(set(self.purges).difference(self.inputs)):
            raise ValueError(f"purges: {', '.join(others)} is not one of its inputs")
        if reserved := sorted(RESERVED.intersection(self.states)):
            raise ValueError(f"states: {', '.join(reserved)} is the name of another of a group's topics")
        for names in (self.states, list[str](self.timers), self.reads):
            if twice := sorted({each for each in names if names.count(each) > 1}):
                raise ValueError(f"{', '.join(twice)} stands twice in its states, timers, inputs or joins")
        return self

    @property
    def reads(self) -> list[str]:
        return [*self.inputs, *self.joins]

    @property
    def named_tables(self) -> list[str]:
        """The suffixes of the names of its tables' topics, its own table's excepted."""
        recorded = self.rows_evolve or bool(self.states or self.timers)
        engine = ((self.once, IDS), (self.changes, HANDLED), (recorded, STATES))
        return [*(end for kept, end in engine if kept), *self.states, *(TIMER_TABLES[t] for t in self.timers)]

    def inner(self, name: str) -> list[str]:
        """The topics that it alone reads, beside its inputs and joined tables."""
        ends = ["retry", *(["loop"] if self.loop else []), *(["visits"] if self.visits else [])]
        return [f"{name}-{end}" for end in ends]

    def implied(self, name: str, partitions: int, replication: int) -> Iterator[TopicDescription]:
        """The topics that the group needs for itself."""
        if self.table:
            config = {**TABLE_CONFIG, **self.table_config}
            yield TopicDescription(f"{name}-table", partitions, replication, config)
        for end in self.named_tables:
            yield TopicDescription(f"{name}-{end}", partitions, replication, TABLE_CONFIG)
        yield TopicDescription(f"{name}-dead-letters", partitions, replication, DEAD_LETTER_CONFIG)
        for topic in self.inner(name):
            yield TopicDescription(topic, partitions, replication, INNER_CONFIG)


class DeclaredUser(_Strict):
    """A user of Kafka, with its operations; its ACLs follow from them.

    Attributes:
        runs: groups that it runs processors of.
        writes: topics.
        reads: The topics, including tables, that it reads; "*": all, and the committed offsets of all groups.
        follows: The groups whose committed offsets it reads, to wait until an event is in their tables.
        replays: it may send the dead letters of all groups again.
        rebuilds: groups whose tables and offsets it writes from outside, before they run. Of one that is not declared, only its own
            table and its ids.
    """

    runs: list[str] = []
    writes: list[str] = []
    reads: list[str] = []
    follows: list[str] = []
    replays: bool = False
    rebuilds: list[str] = []


class Declared(_Strict):
    defaults: Defaults = Defaults()
    topics: dict[str, DeclaredTopic | None] = {}
    groups: dict[str, DeclaredGroup] = {}
    users: dict[Annotated[str, Field(pattern=USER_NAME)], DeclaredUser] = {}

    def descriptions(self) -> Mapping[str, TopicDescription]:
        """All topics by name, those that the groups imply included.

        Raises:
            ConfigurationError: an illegal or ambiguous name, an unknown input, or inputs that differ in partitions.
        """
        found: dict[str, tuple[str, TopicDescription]] = {}
        for owner, topic in self._all():
            legal_name(topic.name, "topic")
            other_owner, other = found.setdefault(topic.name.replace(".", "_"), (owner, topic))
            if other is not topic:
                twice = (
                    "declared twice" if other.name == topic.name else f"too close to {other.name!r} for Kafka"
                )
                raise ConfigurationError(f"topic {topic.name!r} is {twice}: by {other_owner} and by {owner}")
        return {topic.name: topic for _, topic in found.values()}

    def _all(self) -> Iterator[tuple[str, TopicDescription]]:
        """Yield all topics, each with the name of what declares it."""
        plain = {}
        for name, given in self.topics.items():
            topic = given or DeclaredTopic()
            plain[name] = TopicDescription(
                name,
                topic.partitions or self.defaults.partitions,
                topic.replication or self.defaults.replication,
                topic.config,
            )
        yield from (("topics", each) for each in plain.values())
        tables = {f"{name}-table": name for name, group in self.groups.items() if group.table}
        tables |= {f"{name}-{state}": name for name, group in self.groups.items() for state in group.states}
        for name, group in self.groups.items():
            _check_reads(name, group, plain, tables)
        for name, group in self.groups.items():
            counts = {
                each: plain[each].partitions
                if each in plain
                else self._partitions(tables[each], plain, tables)
                for each in group.reads
            }
            if len(set(counts.values())) > 1:
                raise ConfigurationError(
                    f"group {name!r} needs inputs and joined tables with equally many partitions: {counts}"
                )
            partitions = self._partitions(name, plain, tables)
            for each in group.implied(name, partitions, self.defaults.replication):
                yield f"group {name!r}", each

    def _partitions(self, name: str, plain: Mapping[str, TopicDescription], tables: Mapping[str, str]) -> int:
        """Return the partitions of a group's own topics: as many as its first plain topic has."""
        seen = []
        waiting = [name]
        while waiting:
            seen.append(waiting.pop(0))
            reads = self.groups[seen[-1]].reads
            for each in reads:
                if each in plain:
                    return plain[each].partitions
            waiting += [tables[each] for each in reads if tables[each] not in (*seen, *waiting)]
        return self.defaults.partitions


def _check_reads(
    name: str, group: DeclaredGroup, plain: Mapping[str, TopicDescription], tables: Mapping[str, str]
) -> None:
    if unknown := [each for each in group.inputs if each not in {**plain, **tables}]:
        raise ConfigurationError(f"group {name!r} reads {', '.join(unknown)}, which is not declared")
    for each in group.joins:
        if tables.get(each) == name:
            raise ConfigurationError(f"group {name!r} joins its own table, {each}")
        if each not in plain and each not in tables:
            raise ConfigurationError(
                f"group {name!r} joins {each}, which is neither a declared topic nor the table of a declared group"
            )
        if each in plain and "compact" not in plain[each].config.get("cleanup.policy", ""):
            raise ConfigurationError(
                f"group {name!r} joins {each}, which is not declared as a table, so its rows would be deleted by age: "
                "give it config: {cleanup.policy: compact}"
            )


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the base's signature
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.MarkedYAMLError("a key stands twice in", node.start_mark)
        return mapping


def load(path: Path) -> Declared:
    """Read the file. Raises `ConfigurationError` with the place of a mistake."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader
        return Declared.model_validate(content or {})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc'])) or 'file'}: {each['msg']}" for each in error.errors()]
        raise ConfigurationError("\n".join([f"{path} is wrong:", *lines])) from error
    except FileNotFoundError as error:
        here = Path(path.name)
        hint = f": {here} is here, though" if here != path and here.exists() else ""
        raise ConfigurationError(
            f"there is no {path}, where topics are declared: name the file by --file{hint}"
        ) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
