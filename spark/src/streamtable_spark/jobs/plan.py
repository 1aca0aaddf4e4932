"""The plan of a rebuild, made before anything is changed: it fixes the offsets for the whole rebuild.

A run that was interrupted is resumed with the plan in its manifest, so that it computes the same table.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from streamtable.base.types import Committed
from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.computed import TableRequest
from streamtable_spark.jobs.files import RemotePath
from streamtable_spark.jobs.history import refuse_compacted, refuse_recreated
from streamtable_spark.jobs.manifest import Manifest, code_version, load, offsets_before
from streamtable_spark.jobs.positions import Offsets, Place, by_place, check_within, first_beyond, parse_until
from streamtable_spark.jobs.source import Source

_RECREATED: Final = "Give --allow-missing to make a table of what the inputs hold now"


@dataclass(frozen=True, kw_only=True)
class RebuildRequest(TableRequest):
    """The request for a rebuild.

    Attributes:
        as_group: The group whose table is written.
        manifest: The path of the manifest.
        until: The end of the inputs: `now`, or offsets as JSON.
        replace: Whether a table and offsets that `as_group` already has are replaced.
    """

    as_group: str
    manifest: Path | RemotePath
    until: str = "now"
    replace: bool = False

    @property
    def target(self) -> Source:
        """The group whose tables are written: the same graph, with topics of its own."""
        return replace(self.source, group=self.as_group)

    @property
    def own(self) -> list[str]:
        """The topics whose offsets are committed for `as_group`."""
        return [*self.target.inputs, self.target.retry, *self.target.joins]


def plan_of(cluster: Cluster, request: RebuildRequest, now: Callable[[], datetime]) -> Manifest:
    """Return the plan of an interrupted run, or a new one. Its state is `begun`; it is not saved.

    Raises:
        ConfigurationError: The topics do not match, or the new group already has a table or offsets.
        InputLost: The inputs do not go back to their beginning.
        RetryLater: Kafka does not answer.
    """
    _check_topics(cluster, request)
    refuse_members(cluster, request.as_group)
    committed = cluster.committed(request.as_group, request.own)
    before = load(request.manifest)
    if before is not None and before.state == "begun":
        return _taken_up(cluster, request, before, offsets_before(committed))
    if before is not None and not request.replace:
        raise ConfigurationError(
            f"{request.manifest} is of a rebuild that was done (begun {before.began}): give another --manifest, or --replace"
        )
    if not request.replace:
        _refuse_used(cluster, request, committed)
    return _frozen(cluster, request, offsets_before(committed), now)


def refuse_members(cluster: Cluster, group: str) -> None:
    """Raise `ConfigurationError` if the group has live members."""
    if members := cluster.members(group):
        raise ConfigurationError(
            f"group {group!r} has {len(members)} live member{'s' * (len(members) > 1)} ({', '.join(members[:3])}): its table is theirs; stop them, or name another group with --as"
        )


def _check_topics(cluster: Cluster, request: RebuildRequest) -> None:
    """Raise `ConfigurationError` if a topic is missing, or a topic of the groups has another number of partitions."""
    source = request.source
    changelogs = request.target.changelogs.values()
    together = [*source.inputs, source.retry, source.dead_letters, *changelogs, *request.own]
    found = cluster.topics([*together, *source.context])
    first = together[0]
    for topic in together:
        if (there := found[topic].partitions) != (here := found[first].partitions):
            raise ConfigurationError(
                f"{topic} has {there} partitions, and the input {first} has {here}: create it again with as many"
            )


def _refuse_used(
    cluster: Cluster, request: RebuildRequest, committed: Mapping[Place, Committed | None]
) -> None:
    ends = cluster.ends(request.target.changelogs.values())
    if full := [(place, end) for place, end in by_place(ends) if end > 0]:
        place, end = full[0]
        raise ConfigurationError(
            f"{place} is not empty (it ends at {end}): name a new group with --as, or give --replace, and its rows are changed to the rebuild's rows"
        )
    if any(each is not None for each in committed.values()):
        raise ConfigurationError(
            f"group {request.as_group!r} has committed offsets already: name a new group with --as, or give --replace"
        )


def _taken_up(
    cluster: Cluster, request: RebuildRequest, before: Manifest, committed: Mapping[str, int]
) -> Manifest:
    this = (request.source.computes.name, request.source.group, request.as_group, cluster.id())
    if (before.scenario, before.group, before.as_group, before.cluster) != this:
        raise ConfigurationError(
            f"{request.manifest} is of another rebuild ({before.group} as {before.as_group}, not finished): give another --manifest"
        )
    if request.lake not in (None, before.lake):
        raise ConfigurationError(
            f"{request.manifest} is of a rebuild from {before.lake or 'earliest'}, not finished: run it again without --from to finish it, or delete the file and give --replace"
        )
    inputs = {topic: len(parts) for topic, parts in before.inputs.items()}
    until = parse_until(request.until, inputs)
    for topic, offsets in (until or {}).items():
        if offsets != {number: span.end for number, span in before.inputs[topic].items()}:
            raise ConfigurationError(
                f"{request.manifest} is of a rebuild to other offsets of {topic}, not finished: run it again without --until to finish it, or delete the file and give --replace"
            )
    ours = {str(place): at for place, at in by_place(before.offsets)}
    if committed not in (before.before, ours):
        raise ConfigurationError(
            f"group {request.as_group!r} has gone on since its rebuild of {before.began} was ended halfway: its table is in use. Delete the manifest and give --replace to rebuild it anyway"
        )
    return before


def _frozen(
    cluster: Cluster, request: RebuildRequest, before: Mapping[str, int], now: Callable[[], datetime]
) -> Manifest:
    """Return a new plan. It reads the ends of the inputs first: letters and context can only grow meanwhile."""
    source = request.source
    read_ = [*source.inputs, source.retry, *source.joins_read]
    committed = {} if request.allow_missing else cluster.committed(source.group, read_)
    topics = cluster.topics([*read_, *source.context])
    refuse_recreated(source.group, committed, {name: topics[name] for name in read_}, _RECREATED)
    events = topics.keys() - {*source.compacted}
    refuse_compacted({name: topics[name] for name in events}, allow_missing=request.allow_missing)
    ends = cluster.stable_ends(read_)
    until = parse_until(request.until, {name: topics[name].partitions for name in read_})
    if source.loop is not None:
        if until is not None:
            raise ConfigurationError(
                f"--until: {source.loop} holds what group {source.group!r} has sent to itself up to where it stands: a group with a loop is rebuilt at the offsets that it has committed"
            )
        ends = _drained(cluster, source, read_)
    if until is not None:
        check_within(until, ends)
        ends |= until
    others = cluster.stable_ends(topic for topic in request.own if topic not in read_)
    own: dict[str, Offsets] = {topic: ends[topic] for topic in request.own if topic in ends} | others
    inputs, letters = request.spans(cluster, ends)
    return Manifest(
        scenario=source.computes.name,
        group=source.group,
        as_group=request.as_group,
        cluster=cluster.id(),
        replace=request.replace,
        inputs=inputs,
        lake=request.lake,
        letters=letters,
        offsets=own,
        before=before,
        code=code_version(),
        began=now().isoformat(timespec="seconds"),
    )


def _drained(cluster: Cluster, source: Source, topics: Collection[str]) -> dict[str, Offsets]:
    """Return the committed offsets of a group with a loop, if it has handled all records that it has sent to itself.

    A transaction that commits offsets of inputs also holds the records sent to the loop. So if the committed offsets are equal
    before and after reading the loop's end, and have reached that end, the loop holds exactly the results of these inputs.

    Raises:
        RetryLater: The group has a lag on its loop, or commits meanwhile.
    """
    assert source.loop is not None, "asked for a group with a loop"
    before = cluster.committed(source.group, topics)
    ends = cluster.ends([source.loop])
    after = cluster.committed(source.group, topics)
    stands: dict[str, Offsets] = {topic: {} for topic in topics}
    for place, each in after.items():
        stands[place.topic][place.partition] = 0 if each is None else each.next_offset
    if before != after or first_beyond(ends, stands):
        raise RetryLater(
            f"group {source.group!r} is at work on its loop {source.loop}, so no offsets of its inputs say what is in there: stop what sends to its inputs, or its processes when they have no lag, and run this again"
        )
    return stands
