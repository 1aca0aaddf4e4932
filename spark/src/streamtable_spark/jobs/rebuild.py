"""Rebuild a group's table from history, as the table of a new group that continues from exactly these offsets.

    python -m streamtable_spark.jobs.rebuild --bootstrap-servers HOST:PORT --group click-count --as click-count-v2

The order of the steps makes it safe to run again after a crash: the offsets are fixed and saved before anything
is written; only rows that the changelog does not hold yet are written; and the offsets of the new group are committed last, when
all earlier writers are fenced. Until then its processors refuse to start, since there is a table without
offsets.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable.base.event_time import InputTime
from streamtable.base.types import Committed, NextOffset
from streamtable.tables.position import rebuilt
from streamtable_spark.errors import ConfigurationError, InputLost, RetryLater
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.computed import Computed, Digests, Times, digests_of
from streamtable_spark.jobs.files import path_of
from streamtable_spark.jobs.formats import Reached
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.job_args import arguments, earlier_of, ended, session_of, source_of
from streamtable_spark.jobs.lake_history import lake_history
from streamtable_spark.jobs.manifest import Manifest
from streamtable_spark.jobs.plan import RebuildRequest, plan_of, refuse_members
from streamtable_spark.jobs.positions import TABLE, Offsets, Place, by_place, first_beyond, spans_to
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.jobs.writer import ChangelogWriter, Written
from streamtable_spark.transforms.changelog import changes, rows_held

STAGES: Final = (
    "looking at topics and groups", "computing the table", "comparing with the existing table", "writing the changelog",
    "reading it back", "committing the offsets",
)  # fmt: skip


def rebuild(
    spark: Callable[[], SparkSession],
    cluster: Cluster,
    request: RebuildRequest,
    progress: Progress,
    *,
    now: Callable[[], datetime],
    reached: Reached = lambda _: None,
) -> Manifest:
    """Rebuild a table.

    Args:
        spark: Creates the session, once the arguments are validated.
        cluster: The Kafka cluster.
        request: The group to rebuild, and the group whose table is written.
        progress: Receives the progress of the run.
        now: The clock, for the manifest.
        reached: Called with the name of each step that is done, for tests.

    Raises:
        ConfigurationError: The topics do not match, or the new group already has a table or offsets.
        InputLost: The inputs do not go back to their beginning.
        OtherLake: The lake was made from other topics, or is damaged.
        RetryLater: Kafka does not answer, or not as it should; it can be run again.
        Fenced: Another rebuild of the same table has begun.
    """
    progress.stage(STAGES[0])
    plan = plan_of(cluster, request, now)
    session = spark()
    if session.conf.get("spark.speculation", "false") == "true":
        raise ConfigurationError(
            "spark.speculation is on: the two tries of a task would fence each other; set it to false"
        )
    if plan.lake is not None:
        lake_history(session, plan.lake, cluster)  # refuses a folder that is none, before the plan holds it
    plan.save(request.manifest)
    progress.reads(plan.inputs)
    reached("begun")
    count = len(plan.offsets[request.target.retry])
    writers = {
        name: ChangelogWriter(cluster.bootstrap_servers, topic)
        for name, topic in request.target.changelogs.items()
    }
    for writer in writers.values():
        writer.fence(count)
    reached("fenced")
    computed, digests = _make(session, cluster, request, plan, writers, progress, reached)
    positions = {
        name: _read_back(session, cluster, topic, digests[name])
        for name, topic in request.target.changelogs.items()
    }
    reached("read back")
    progress.stage(STAGES[5])
    _commit(cluster, request, plan, positions, computed.times)
    reached("committed")
    tables = {
        name: {
            number: {**each, "changelog": positions[name][number]} for number, each in sorted(parts.items())
        }
        for name, parts in digests.items()
    }
    done = replace(plan, state="done", table=tables.pop(TABLE, {}), counts=computed.counts, tables=tables)
    done.save(request.manifest)
    rows = sum(each["rows"] for parts in digests.values() for each in parts.values())
    progress.done(summary=f"{rows} rows of {computed.counts['events']} events", rows=rows, **computed.counts)
    return done


# ---- its steps ------------------------------------------------------------------------------------------------------


def _make(
    session: SparkSession,
    cluster: Cluster,
    request: RebuildRequest,
    plan: Manifest,
    writers: Mapping[str, ChangelogWriter],
    progress: Progress,
    reached: Reached,
) -> tuple[Computed, Mapping[str, Digests]]:
    """Compute the tables with their digests, and write the rows that their changelogs do not hold yet."""
    progress.stage(STAGES[1])
    count = len(plan.offsets[request.target.retry])
    # The lake and the time come from the plan: a run that resumes it computes the same.
    now = datetime.fromisoformat(plan.began).timestamp()
    computed = replace(request, lake=plan.lake).compute(session, cluster, plan.inputs, plan.letters, now)
    try:
        digests = {name: digests_of(computed.tables[name], count) for name in writers}
        reached("computed")
        progress.stage(STAGES[2], **computed.counts)
        written: list[Written] = []
        for name, writer in writers.items():
            held = rows_held(_changelog(session, cluster, writer.topic))
            todo = changes(computed.tables[name], held)
            todo = todo.repartition("partition").sortWithinPartitions("partition", "key")
            progress.stage(STAGES[3])
            written += _write(todo, writer)
        reached("written")
        for writer in writers.values():
            writer.fence(count)
        reached("fenced again")
    finally:
        session.catalog.clearCache()
    deleted = sum(each.deleted for each in written)
    progress.stage(STAGES[4], written=sum(each.written for each in written), deleted=deleted)
    return computed, digests


def _read_back(session: SparkSession, cluster: Cluster, topic: str, target: Digests) -> Offsets:
    """Check that the changelog holds the computed rows. Returns the offset after the last record of each partition."""
    log = _changelog(session, cluster, topic)
    last = log.groupBy("partition").agg((fn.max("offset") + 1).alias("next")).collect()
    there = digests_of(rows_held(log), len(target))
    if there != target:
        first = min(number for number in there if there[number] != target[number])
        raise RetryLater(
            f"{Place(topic, first)} holds {there[first]} instead of {target[first]}: stop the other process that writes to it, and run this again"
        )
    return dict.fromkeys(target, 0) | {row["partition"]: row["next"] for row in last}


def _changelog(session: SparkSession, cluster: Cluster, topic: str) -> DataFrame:
    """Return all committed records, once the transactions that fencing has aborted are closed."""
    ends = cluster.ends([topic])[topic]
    cluster.wait_stable(topic, ends)
    return read(session, cluster.bootstrap_servers, spans_to({topic: ends}, cluster.starts([topic])))


def _write(todo: DataFrame, writer: ChangelogWriter) -> list[Written]:
    written = todo.rdd.mapPartitions(writer.write).collect()
    for each in written:
        if each.error is not None:
            raise each.error
    return written


def _commit(
    cluster: Cluster, request: RebuildRequest, plan: Manifest, positions: Mapping[str, Offsets], times: Times
) -> None:
    refuse_members(cluster, request.as_group)
    names = request.source.names()

    def metadata(topic: str, number: int) -> str:
        marks = {name: parts[number] for name, parts in positions.items()}
        time = times.get(number, {}).get(names.get(topic, topic))
        return rebuilt(marks.pop(TABLE, 0), marks, time and InputTime(*time)).encode()

    offsets = {
        place: Committed(NextOffset(offset), metadata(*place)) for place, offset in by_place(plan.offsets)
    }
    if beyond := first_beyond(plan.offsets, cluster.ends(plan.offsets)):
        place, offset, end = beyond
        raise InputLost(f"{place} ends at {end}, and {offset} was read: the topic was created again since")
    cluster.set_offsets(request.as_group, offsets)
    found = cluster.committed(request.as_group, plan.offsets)
    if wrong := [place for place, each in offsets.items() if found.get(place) != each]:
        raise RetryLater(f"the offset of {wrong[0]} is not the committed one: run this again")


# ---- the command ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """Run the job with these arguments, and return its exit status."""
    parser = arguments("rebuild", "Rebuild a group's table from history, as the table of a new group.")
    add = parser.add_argument
    add("--as", dest="as_group", required=True, metavar="GROUP", help="the group that gets the table")
    add(
        "--until",
        default="now",
        metavar="WHERE",
        help='now (default), or offsets: {"user-clicks": {"0": 1200}}; @FILE',
    )
    add("--replace", action="store_true", help="replace the table and offsets that the group may have")
    add("--manifest", help="file of the manifest, a path or a URL (GROUP.rebuild.json)")
    found = parser.parse_args(argv)
    session = session_of(found)
    request = RebuildRequest(
        source=source_of(found, goes_on=True),
        allow_missing=found.allow_missing,
        lake=found.lake,
        earlier=earlier_of(found, session),
        as_group=found.as_group,
        manifest=path_of(found.manifest or f"{found.as_group}.rebuild.json", session),
        until=_text_of(found.until),
        replace=found.replace,
    )
    with (
        reported_run(found, STAGES, report=str(request.manifest)) as progress,
        Cluster(found.bootstrap_servers) as cluster,
    ):
        rebuild(session, cluster, request, progress, now=lambda: datetime.now(UTC))
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
