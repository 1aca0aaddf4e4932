"""Rebuild a group's table from history, as the table of a new group that goes on from exactly there.

    python -m streamtable_spark.jobs.rebuild --bootstrap-servers HOST:PORT --group click-count --as click-count-v2

The order of the steps is what makes it safe to run again after a crash: the offsets are fixed and saved before anything
is written; only what the changelog does not hold yet is written; and the new group gets its offsets last, when nobody
who has begun to write can still do so. Until then its processors refuse to start, since there is a table without
offsets.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, InputLost, RetryLater
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.manifest import Manifest, code_version, load, offsets_before
from streamtable_spark.jobs.positions import (
    Committed,
    Offsets,
    Place,
    Span,
    TablePosition,
    check_within,
    parse_until,
)
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.running import (
    Source,
    arguments,
    earlier_of,
    ended,
    history_of,
    lake_of,
    local_of,
    retries_of,
    rows_of,
    source_of,
    spans_of,
    with_earlier,
)
from streamtable_spark.jobs.writer import ChangelogWriter, Written
from streamtable_spark.session import connect
from streamtable_spark.transforms.changelog import changes, digests, rows_held
from streamtable_spark.transforms.tables import values

STAGES: Final = (
    "looking at topics and groups",
    "computing the table",
    "comparing with what is there",
    "writing the changelog",
    "reading it back",
    "committing the offsets",
)
_STABLE_S: Final = 60.0

Reached = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is to be rebuilt.

    Attributes:
        source: the group whose events are read.
        as_group: the group whose table is written.
        manifest: where the manifest is, or will be.
        until: `now`, or offsets as JSON.
        replace: `as_group` may have a table and offsets already; they are replaced.
        allow_missing: the inputs may begin later than at offset 0.
        lake: folder of a lake that has what Kafka has no longer.
        earlier: the rebuild that the table of the source comes from.
    """

    source: Source
    as_group: str
    manifest: Path
    until: str = "now"
    replace: bool = False
    allow_missing: bool = False
    lake: str | None = None
    earlier: Manifest | None = None

    @property
    def changelog(self) -> str:
        return f"{self.as_group}-table"

    @property
    def retry(self) -> str:
        return f"{self.as_group}-retry"


def rebuild(
    spark: Callable[[], SparkSession],
    cluster: Cluster,
    wanted: Wanted,
    progress: Progress,
    *,
    now: Callable[[], datetime],
    reached: Reached = lambda _: None,
) -> Manifest:
    """Rebuild a table.

    Args:
        spark: makes the session, when the arguments have been found good.
        cluster: Kafka.
        wanted: what.
        progress: is told the stages.
        now: the time, for the manifest.
        reached: called with the name of each step that is done, for tests.

    Raises:
        ConfigurationError: the topics do not fit, or something is there that must not be.
        InputLost: the inputs do not go back to their beginning.
        RetryLater: Kafka does not answer, or not as it should; it can be run again.
        Fenced: another rebuild of the same table has begun.
    """
    progress.stage(STAGES[0])
    partitions = _check_topics(cluster, wanted)
    count = partitions[wanted.changelog]
    plan = _plan(cluster, wanted, partitions, now)
    plan.save(wanted.manifest)
    reached("begun")
    writer = ChangelogWriter(cluster.bootstrap_servers, wanted.changelog)
    writer.fence(count)
    reached("fenced")

    session = spark()
    if session.conf.get("spark.speculation", "false") == "true":
        raise ConfigurationError(
            "spark.speculation is on: the two tries of a task would fence each other; set it to false"
        )
    progress.stage(STAGES[1])
    records = history_of(session, cluster, plan.inputs, plan.lake, allow_missing=wanted.allow_missing)
    dead = read(session, cluster.bootstrap_servers, plan.letters)
    rows = rows_of(wanted.source, records, dead, retries_of(plan.inputs, wanted.source)).persist()
    table = values(rows, wanted.source.table).persist()
    try:
        counts = _counts(rows)
        target = _digests(table, count)
        reached("computed")
        progress.stage(STAGES[2], **counts)
        held = rows_held(_changelog(session, cluster, wanted.changelog, count))
        todo = changes(table, held).repartition("partition").sortWithinPartitions("partition", "key")
        progress.stage(STAGES[3])
        written = _write(todo, writer)
        reached("written")
    finally:
        table.unpersist()
        rows.unpersist()
    writer.fence(count)
    reached("fenced again")

    progress.stage(
        STAGES[4],
        written=sum(each.written for each in written),
        deleted=sum(each.deleted for each in written),
    )
    log = _changelog(session, cluster, wanted.changelog, count)
    positions = dict.fromkeys(range(count), 0) | {
        row["partition"]: row["next"]
        for row in log.groupBy("partition").agg((fn.max("offset") + 1).alias("next")).collect()
    }
    there = _digests(rows_held(log), count)
    if there != target:
        different = sorted(number for number in there if there[number] != target[number])
        raise RetryLater(
            f"{Place(wanted.changelog, different[0])} does not hold what was computed "
            f"({there[different[0]]} instead of {target[different[0]]}): somebody else writes to it; stop them, and run "
            "this again"
        )
    reached("read back")
    progress.stage(STAGES[5])
    _commit(cluster, wanted, plan, positions)
    reached("committed")
    done = plan.done(
        {number: {**target[number], "changelog": positions[number]} for number in sorted(target)}, counts
    )
    done.save(wanted.manifest)
    progress.done(rows=sum(each["rows"] for each in target.values()), **counts)
    return done


# ---- what is asked before anything is changed -----------------------------------------------------------------------


def _check_topics(cluster: Cluster, wanted: Wanted) -> dict[str, int]:
    source = wanted.source
    together = [
        *source.inputs,
        source.retry,
        source.dead_letters,
        wanted.changelog,
        wanted.retry,
        *source.joins,
    ]
    found = cluster.partitions([*together, *source.context])
    first = together[0]
    for topic in together:
        if found[topic] != found[first]:
            raise ConfigurationError(
                f"{topic} has {found[topic]} partitions, and the input {first} has {found[first]}: a group's topics all "
                "have the same number; make the topic anew with it"
            )
    return {topic: found[topic] for topic in [*together, *source.context]}


def _plan(
    cluster: Cluster, wanted: Wanted, partitions: Mapping[str, int], now: Callable[[], datetime]
) -> Manifest:
    """What to do: that of the run which was ended halfway, or a new one."""
    _refuse_members(cluster, wanted.as_group)
    committed = cluster.committed(
        wanted.as_group,
        {topic: partitions[topic] for topic in [*wanted.source.inputs, wanted.retry, *wanted.source.joins]},
    )
    before = load(wanted.manifest)
    if before is not None and before.state == "begun":
        return _taken_up(cluster, wanted, before, offsets_before(committed))
    if before is not None and not wanted.replace:
        raise ConfigurationError(
            f"{wanted.manifest} is of a rebuild that was done (begun {before.began}): name another file with --manifest, "
            "or give --replace to do it anew"
        )
    if not wanted.replace:
        _refuse_used(cluster, wanted, committed, partitions)
    return _frozen(cluster, wanted, partitions, offsets_before(committed), now)


def _refuse_members(cluster: Cluster, group: str) -> None:
    if members := cluster.members(group):
        raise ConfigurationError(
            f"group {group!r} has {len(members)} live member{'s' * (len(members) > 1)} ({', '.join(members[:3])}): "
            "its table is theirs; stop them, or name another group with --as"
        )


def _refuse_used(
    cluster: Cluster,
    wanted: Wanted,
    committed: Mapping[Place, Committed | None],
    partitions: Mapping[str, int],
) -> None:
    ends = cluster.ends({wanted.changelog: partitions[wanted.changelog]})[wanted.changelog]
    full = [number for number, end in sorted(ends.items()) if end > 0]
    if full:
        raise ConfigurationError(
            f"{Place(wanted.changelog, full[0])} is not empty (it ends at {ends[full[0]]}): name a new group with --as, or "
            "give --replace, and its rows are changed to those of the rebuild"
        )
    if any(each is not None for each in committed.values()):
        raise ConfigurationError(
            f"group {wanted.as_group!r} has committed offsets already: name a new group with --as, or give --replace"
        )


def _taken_up(
    cluster: Cluster,
    wanted: Wanted,
    before: Manifest,
    committed: Mapping[str, int],
) -> Manifest:
    this = (wanted.source.table.name, wanted.source.group, wanted.as_group, cluster.id())
    if (before.scenario, before.group, before.as_group, before.cluster) != this:
        raise ConfigurationError(
            f"{wanted.manifest} is of another rebuild ({before.group} as {before.as_group}, not finished): name another "
            "file with --manifest"
        )
    inputs = {topic: len(parts) for topic, parts in before.inputs.items()}
    until = parse_until(wanted.until, inputs)
    for topic, offsets in (until or {}).items():
        if offsets != {number: span.end for number, span in before.inputs[topic].items()}:
            raise ConfigurationError(
                f"{wanted.manifest} is of a rebuild to other offsets of {topic}, not finished: run it again without "
                "--until to finish it, or delete the file and give --replace"
            )
    ours = {
        str(Place(topic, number)): at
        for topic, offsets in before.offsets.items()
        for number, at in offsets.items()
    }
    if committed not in (before.before, ours):
        raise ConfigurationError(
            f"group {wanted.as_group!r} has gone on since its rebuild of {before.began} was ended halfway: its table is "
            "in use. Delete the manifest and give --replace to rebuild it all the same"
        )
    return before


def _frozen(
    cluster: Cluster,
    wanted: Wanted,
    partitions: Mapping[str, int],
    before: Mapping[str, int],
    now: Callable[[], datetime],
) -> Manifest:
    """A new plan. The ends of the inputs first: of letters and context only more can come meanwhile."""
    source = wanted.source
    read_ = {topic: partitions[topic] for topic in [*source.inputs, source.retry]}
    ends = cluster.stable_ends(read_)
    until = parse_until(wanted.until, read_)
    if until is not None:
        check_within(until, ends)
        ends |= until
    beside = {topic: partitions[topic] for topic in [source.dead_letters, *source.context]}
    others = {topic: partitions[topic] for topic in [wanted.retry, *source.joins] if topic not in read_}
    beside_ends, other_ends = cluster.stable_ends(beside), cluster.stable_ends(others)
    dead = {source.dead_letters: beside_ends.pop(source.dead_letters)}
    ends_read = ends | {topic: at for topic, at in beside_ends.items() if topic not in ends}
    own: dict[str, Offsets] = {topic: ends[topic] for topic in source.inputs} | other_ends
    if wanted.retry == source.retry:
        own[wanted.retry] = ends[source.retry]
    inputs, letters = with_earlier(
        spans_of(cluster, ends_read, wanted.lake, allow_missing=wanted.allow_missing),
        # Letters that have expired are of records that cannot be decoded, as far as our scenarios go.
        spans_of(cluster, dead, None, allow_missing=True),
        wanted.earlier,
        source,
    )
    return Manifest(
        scenario=source.table.name,
        group=source.group,
        as_group=wanted.as_group,
        cluster=cluster.id(),
        replace=wanted.replace,
        inputs=inputs,
        lake=wanted.lake,
        letters=letters,
        offsets=own,
        before=before,
        code=code_version(),
        began=now().isoformat(timespec="seconds"),
    )


# ---- doing it -------------------------------------------------------------------------------------------------------


def _changelog(session: SparkSession, cluster: Cluster, topic: str, count: int) -> DataFrame:
    """All committed records, when what fencing has aborted is out of the way."""
    ends = cluster.ends({topic: count})[topic]
    cluster.wait_stable(topic, ends, _STABLE_S)
    starts = cluster.starts({topic: count})[topic]
    return read(
        session,
        cluster.bootstrap_servers,
        {topic: {number: Span(starts[number], end) for number, end in ends.items()}},
    )


def _counts(rows: DataFrame) -> dict[str, int]:
    found = rows.agg(fn.sum("events").alias("events"), fn.sum("unfit").alias("unfit")).collect()[0]
    return {"events": found["events"] or 0, "unfit": found["unfit"] or 0}


def _digests(rows: DataFrame, count: int) -> dict[int, dict[str, Any]]:
    empty = {number: {"rows": 0, "digest": "0" * 16} for number in range(count)}
    found = digests(rows).collect()
    return empty | {row["partition"]: {"rows": row["rows"], "digest": row["digest"]} for row in found}


def _write(todo: DataFrame, writer: ChangelogWriter) -> list[Written]:
    written = todo.rdd.mapPartitions(writer.write).collect()
    for each in written:
        if each.error is not None:
            raise each.error
    return written


def _commit(cluster: Cluster, wanted: Wanted, plan: Manifest, positions: Offsets) -> None:
    _refuse_members(cluster, wanted.as_group)
    offsets = {
        Place(topic, number): Committed(offset, TablePosition(positions[number]).encode())
        for topic, parts in plan.offsets.items()
        for number, offset in parts.items()
    }
    ends = cluster.ends({topic: len(parts) for topic, parts in plan.offsets.items()})
    for place, each in offsets.items():
        if each.next_offset > ends[place.topic][place.partition]:
            raise InputLost(
                f"{place} ends at {ends[place.topic][place.partition]}, and {each.next_offset} was read: it was deleted "
                "and created again meanwhile"
            )
    cluster.set_offsets(wanted.as_group, offsets)
    found = cluster.committed(wanted.as_group, {topic: len(parts) for topic, parts in plan.offsets.items()})
    if wrong := [place for place, each in offsets.items() if found.get(place) != each]:
        raise RetryLater(f"the offset of {wrong[0]} is not what was committed: run this again")


# ---- the command ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """The job, with its arguments. Returns its status."""
    parser = arguments("rebuild", "Rebuild a group's table from history, as the table of a new group.")
    parser.add_argument(
        "--as", dest="as_group", required=True, metavar="GROUP", help="the group that gets the table"
    )
    parser.add_argument(
        "--until",
        default="now",
        metavar="WHERE",
        help='now (default), or offsets: {"user-clicks": {"0": 1200}}; @FILE',
    )
    parser.add_argument(
        "--replace", action="store_true", help="it may have a table and offsets: they are replaced"
    )
    parser.add_argument("--manifest", type=Path, help="what it was made from (GROUP.rebuild.json)")
    found = parser.parse_args(argv)
    wanted = Wanted(
        source_of(found),
        found.as_group,
        found.manifest or Path(f"{found.as_group}.rebuild.json"),
        _text_of(found.until),
        found.replace,
        found.allow_missing,
        lake_of(found),
        earlier_of(found),
    )
    local = local_of(found)
    progress = Progress(STAGES, sys.stderr, time.monotonic)
    with Cluster(found.bootstrap_servers) as cluster:
        rebuild(lambda: connect("rebuild", local), cluster, wanted, progress, now=lambda: datetime.now(UTC))
    return 0


def _text_of(until: str) -> str:
    if not until.startswith("@"):
        return until
    try:
        return Path(until[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--until {until}: the file cannot be read ({error})") from error


if __name__ == "__main__":
    sys.exit(ended(main, sys.argv[1:]))
