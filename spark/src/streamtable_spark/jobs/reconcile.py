"""Compare a group's live table with what its inputs say, at one consistent cut, while its processors go on.

    python -m streamtable_spark.jobs.reconcile --bootstrap-servers HOST:PORT --group click-count

The status is 0 if all rows agree and 1 if one does not.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, InputLost
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import check_kept, read
from streamtable_spark.jobs.job_args import (
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
from streamtable_spark.jobs.manifest import Manifest, code_version
from streamtable_spark.jobs.positions import Cut, Place, Span, Spans, cut_of, spans_to
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.recreated import refuse_recreated
from streamtable_spark.jobs.report import Difference, PartitionReport, Report
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.session import connect
from streamtable_spark.transforms.changelog import digests, rows_held
from streamtable_spark.transforms.differences import MISSING, OVERWRITTEN, differences, overwritten
from streamtable_spark.transforms.tables import read_values, values

STAGES: Final = ("asking where the group stands", "computing the table", "comparing", "writing the report")
_STABLE_S: Final = 60.0
_SHOWN_MAX: Final = 1_000
_PRINTED: Final = 20
_LAG_MS_MAX: Final = 10**12  # Kafka's greatest is more than a timedelta holds
_EMPTY: Final = (0, "0" * 16)
_RECREATED: Final = (
    "Reset the group, `streamtable group reset`: what its table holds then can be audited again"
)


@dataclass(frozen=True)
class AuditRequest:
    """What to audit.

    Attributes:
        source: The group to audit.
        folder: The folder of the report.
        format: The format of the table of differences: parquet or delta.
        allow_missing: The inputs may begin later than at offset 0.
        lake: The folder of a lake that has the records that Kafka no longer has.
        earlier: The rebuild that the group's table comes from.
    """

    source: Source
    folder: Path
    format: str = "parquet"
    allow_missing: bool = False
    lake: str | None = None
    earlier: Manifest | None = None


def reconcile(
    spark: Callable[[], SparkSession],
    cluster: Cluster,
    request: AuditRequest,
    progress: Progress,
    *,
    now: Callable[[], datetime],
) -> Report:
    """Audit a group. The report is also written: `differences/`, `report.json`, `report.html`.

    Args:
        spark: Creates the session, once the arguments are validated.
        cluster: The Kafka cluster.
        request: What to audit.
        progress: Receives the progress of the run.
        now: The clock, for the report.

    Raises:
        ConfigurationError: A topic is missing, or the group has nothing that can be compared exactly.
        InputLost: The inputs do not go back to their beginning.
        RetryLater: Kafka does not answer.
    """
    progress.stage(STAGES[0])
    asked_at = now()
    asked = _ask(cluster, request)
    session, servers, source = spark(), cluster.bootstrap_servers, request.source
    progress.reads({**asked.spans, **asked.log})
    progress.stage(STAGES[1])
    records = history_of(session, cluster, asked.spans, request.lake, allow_missing=request.allow_missing)
    dead = read(session, servers, asked.letters)
    rows = rows_of(source, records, dead, retries_of(asked.spans, source)).persist()
    live = read_values(rows_held(read(session, servers, asked.log)), source.table).persist()
    found = differences(rows.where("row IS NOT NULL"), live, source.table.compared).persist()
    kept = [rows, live, found]
    try:
        counts = rows.agg({"events": "sum", "unfit": "sum"}).collect()[0]
        progress.stage(STAGES[2], events=counts["sum(events)"] or 0)
        kinds = _kinds(found)
        if any(kind == MISSING for _, kind in kinds) and now() - asked_at >= asked.uncompacted:
            found = overwritten(found, _later(session, cluster, asked)).persist()
            kept.append(found)
            kinds = _kinds(found)
        by_partition: Counter[int] = Counter()
        for (number, kind), count in kinds.items():
            if kind != OVERWRITTEN:
                by_partition[number] += count
        progress.stage(STAGES[3], differences=by_partition.total())
        found.coalesce(1).write.format(request.format).mode("overwrite").save(
            str(request.folder / "differences")
        )
        order = (fn.col("difference") == OVERWRITTEN, "partition", "key")
        report = Report(
            group=source.group,
            scenario=source.table.name,
            at=now().isoformat(timespec="seconds"),
            code=code_version(),
            compared=source.table.compared,
            events=counts["sum(events)"] or 0,
            unfit=counts["sum(unfit)"] or 0,
            differences=by_partition.total(),
            overwritten=sum(count for (_, kind), count in kinds.items() if kind == OVERWRITTEN),
            partitions=_partitions(asked.cut, _sums(values(rows, source.table)), _sums(live), by_partition),
            keys=[_difference(row) for row in found.orderBy(*order).limit(_SHOWN_MAX).collect()],
        )
    finally:
        for each in kept:
            each.unpersist()
    _save(report, request.folder)
    rows_live = sum(each.live_rows for each in report.partitions)
    progress.differs(report.differences, report.keys)
    progress.done(
        summary=f"{report.differences} keys differ; the table has {rows_live} rows",
        differences=report.differences,
        rows=rows_live,
    )
    return report


@dataclass(frozen=True)
class _Asked:
    """Where the group stands, and what is to be read for that.

    Attributes:
        spans: The offset ranges of inputs, retries and context; `letters` those of dead letters; `log` those of the changelog.
        uncompacted: How long a record of the changelog stays uncompacted at least.
    """

    cut: Cut
    spans: Spans
    letters: Spans
    log: Spans
    uncompacted: timedelta


def _ask(cluster: Cluster, request: AuditRequest) -> _Asked:
    source, table = request.source, f"{request.source.group}-table"
    inputs = [*source.inputs, source.retry]
    partitions = cluster.partitions([*inputs, source.dead_letters, *source.context, table])
    settings = cluster.settings([*inputs, *source.context, table])
    lag_ms = int(settings.pop(table)["min.compaction.lag.ms"])
    check_kept(settings, allow_missing=request.allow_missing)
    committed = cluster.committed(source.group, {name: partitions[name] for name in inputs})
    refuse_recreated(source.group, committed, cluster.topic_ids(inputs), _RECREATED)
    cut = cut_of(source.group, committed, inputs)
    _wait_readable(cluster, cut, table)
    # After the cut: letters of records before it are there now; those of later ones do no harm.
    beside = cluster.stable_ends({name: partitions[name] for name in [source.dead_letters, *source.context]})
    dead = {source.dead_letters: beside.pop(source.dead_letters)}
    spans, letters = with_earlier(
        spans_of(cluster, {**beside, **cut.inputs}, request.lake, allow_missing=request.allow_missing),
        spans_of(cluster, dead, None, allow_missing=True),
        request.earlier,
        source,
    )
    log = spans_to({table: cut.table}, cluster.starts({table: partitions[table]}))
    return _Asked(cut, spans, letters, log, timedelta(milliseconds=min(lag_ms, _LAG_MS_MAX)))


def _later(session: SparkSession, cluster: Cluster, asked: _Asked) -> DataFrame:
    """What is in the table's topic behind the cut, by now."""
    ((table, parts),) = asked.log.items()
    ends = cluster.stable_ends({table: len(parts)})[table]
    spans = {number: Span(span.end, max(span.end, ends[number])) for number, span in parts.items()}
    return read(session, cluster.bootstrap_servers, {table: spans})


def _kinds(found: DataFrame) -> dict[tuple[int, str], int]:
    """How many there are, by partition and kind."""
    rows = found.groupBy("partition", "difference").count().collect()
    return {(row["partition"], row["difference"]): row["count"] for row in rows}


def _wait_readable(cluster: Cluster, cut: Cut, table: str) -> None:
    ends = cluster.ends({table: len(cut.table), **{topic: len(parts) for topic, parts in cut.inputs.items()}})
    for topic, parts in {**cut.inputs, table: cut.table}.items():
        for number, offset in sorted(parts.items()):
            if offset > ends[topic][number]:
                raise InputLost(
                    f"the group stands at offset {offset} of {Place(topic, number)}, which ends at {ends[topic][number]}: "
                    "the topic was deleted and created again, so its table cannot be computed"
                )
        cluster.wait_stable(topic, parts, _STABLE_S)


def _sums(rows: DataFrame) -> dict[int, tuple[int, str]]:
    return {row["partition"]: (row["rows"], row["digest"]) for row in digests(rows).collect()}


def _partitions(
    cut: Cut,
    expected: Mapping[int, tuple[int, str]],
    live: Mapping[int, tuple[int, str]],
    different: Mapping[int, int],
) -> list[PartitionReport]:
    return [
        PartitionReport(
            partition=number,
            inputs={topic: parts[number] for topic, parts in cut.inputs.items()},
            changelog=cut.table[number],
            expected_rows=expected.get(number, _EMPTY)[0],
            live_rows=live.get(number, _EMPTY)[0],
            expected_digest=expected.get(number, _EMPTY)[1],
            live_digest=live.get(number, _EMPTY)[1],
            differences=different.get(number, 0),
        )
        for number in sorted(cut.table)
    ]


def _difference(row: Row) -> Difference:
    value = row["live_value"]
    return Difference(
        partition=row["partition"],
        key=bytes(row["key"]).decode(errors="backslashreplace"),
        difference=row["difference"],
        expected=row["expected"],
        live=row["live"],
        live_value=None if value is None else bytes(value).hex(),
    )


def _save(report: Report, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(report.as_json())
        (folder / "report.html").write_text(report.as_html())
    except OSError as error:
        raise ConfigurationError(
            f"the report cannot be written to {folder} ({error}): name another --report"
        ) from error


def main(argv: Sequence[str]) -> int:
    """The job, with its arguments. Returns its status."""
    parser = arguments("reconcile", "Compare a group's live table with what its inputs say.")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="folder of the report (GROUP.audit)")
    parser.add_argument(
        "--format", choices=("parquet", "delta"), default="parquet", help="format of the table of differences"
    )
    found = parser.parse_args(argv)
    request = AuditRequest(
        source_of(found),
        found.report or Path(f"{found.group}.audit"),
        found.format,
        found.allow_missing,
        lake_of(found),
        earlier_of(found),
    )
    local = local_of(found)
    with (
        reported_run(
            found,
            "reconcile",
            STAGES,
            group=request.source.group,
            lake=request.lake or "",
            report=str(request.folder / "report.html"),
        ) as progress,
        Cluster(found.bootstrap_servers) as cluster,
    ):
        report = reconcile(
            lambda: connect("reconcile", local), cluster, request, progress, now=lambda: datetime.now(UTC)
        )
    for each in report.keys[:_PRINTED]:
        text = f"partition {each.partition}, key {each.key}: expected {each.expected}, live {each.live}"
        print(f"{each.difference}: {text}")  # noqa: T201 - a command line
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(ended(main, sys.argv[1:]))
