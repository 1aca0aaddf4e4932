"""Compare a group's live table with the one computed from its inputs, at one consistent cut, while its processors run.

    python -m streamtable_spark.jobs.reconcile --bootstrap-servers HOST:PORT --group click-count

The status is 0 if all rows agree and 1 if one does not.
"""

import json
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, InputLost
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.computed import TableRequest, Tables, digests_of, live_rows
from streamtable_spark.jobs.files import RemotePath, path_of, write_whole
from streamtable_spark.jobs.history import read, refuse_compacted, refuse_recreated
from streamtable_spark.jobs.job_args import arguments, earlier_of, ended, session_of, source_of
from streamtable_spark.jobs.manifest import code_version
from streamtable_spark.jobs.positions import TABLE, Cut, Offsets, Span, Spans, cut_of, first_beyond, spans_to
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.report import Difference, PartitionReport, Report
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import Program
from streamtable_spark.transforms.changelog import ROW, rows_held
from streamtable_spark.transforms.differences import DIFFERENT, MISSING, OVERWRITTEN, differences, overwritten

STAGES: Final = ("asking where the group stands", "computing the table", "comparing", "writing the report")
_SHOWN_MAX: Final = 1_000
_PRINTED: Final = 20
_LAG_MS_MAX: Final = 10**12  # Kafka's greatest is more than a timedelta holds
_RECREATED: Final = "Begin a group of another name: what its table holds then can be audited"


@dataclass(frozen=True, kw_only=True)
class AuditRequest(TableRequest):
    """The request for an audit.

    Attributes:
        folder: The folder of the report.
        format: The format of the table of differences: parquet or delta.
    """

    folder: Path | RemotePath
    format: str = "parquet"


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
        request: The group to audit, and the destination of the report.
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
    computed = request.compute(
        session, cluster, asked.spans, asked.letters, asked_at.timestamp(), asked.cut.watermarks
    )
    live = {
        name: live_rows(source, rows_held(read(session, servers, {topic: asked.log[topic]}))).persist()
        for name, topic in asked.tables.items()
    }
    fields = source.computes.fields
    found = reduce(
        DataFrame.unionByName,
        [
            differences(computed.tables[name], live[name], fields).withColumn("table", fn.lit(name))
            for name in asked.tables
        ],
    ).persist()
    if source.program is not None:
        wrong = found.rdd.filter(partial(_differs, source.program))
        found = session.createDataFrame(wrong, found.schema, verifySchema=False).persist()
    try:
        progress.stage(STAGES[2], events=computed.counts["events"])
        kinds = _kinds(found)
        if any(kind == MISSING for _, kind in kinds) and now() - asked_at >= asked.uncompacted:
            found = overwritten(found, _later(session, cluster, asked)).persist()
            kinds = _kinds(found)
        by_partition: Counter[int] = Counter()
        for (number, kind), keys in kinds.items():
            if kind != OVERWRITTEN:
                by_partition[number] += keys
        progress.stage(STAGES[3], differences=by_partition.total())
        table = str(request.folder / "differences")
        found.coalesce(1).write.format(request.format).mode("overwrite").save(table)
        order = (fn.col("difference") == OVERWRITTEN, "table", "partition", "key")
        report = Report(
            group=source.group,
            scenario=source.computes.name,
            at=now().isoformat(timespec="seconds"),
            code=code_version(),
            compared=fields,
            events=computed.counts["events"],
            unfit=computed.counts["unfit"],
            differences=by_partition.total(),
            overwritten=sum(keys for (_, kind), keys in kinds.items() if kind == OVERWRITTEN),
            partitions=_partitions(asked.cut, computed.tables, live, by_partition),
            keys=[_difference(row, source) for row in found.orderBy(*order).limit(_SHOWN_MAX).collect()],
        )
    finally:
        session.catalog.clearCache()
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
    """The cut of the group, and the offset ranges that an audit at this cut reads.

    Attributes:
        spans: The offset ranges of inputs, retries and context; `letters`: of dead letters; `log`: of changelogs.
        tables: The changelogs' topics, by the tables' names.
        uncompacted: The minimum time that records of the changelogs stay uncompacted.
    """

    cut: Cut
    spans: Spans
    letters: Spans
    log: Spans
    tables: Mapping[str, str]
    uncompacted: timedelta


def _ask(cluster: Cluster, request: AuditRequest) -> _Asked:
    source = request.source
    tables = {name: source.changelogs[name] for name in source.computes.compared}
    inputs = [*source.inputs, source.retry, *source.joins_read]
    committed = cluster.committed(source.group, inputs)
    topics = cluster.topics([*inputs, source.dead_letters, *source.context, *tables.values()])
    lag_ms = min(int(topics[table].config["min.compaction.lag.ms"]) for table in tables.values())
    events = {*inputs, *source.context} - {*source.compacted}
    refuse_compacted({name: topics[name] for name in events}, allow_missing=request.allow_missing)
    refuse_recreated(source.group, committed, {name: topics[name] for name in inputs}, _RECREATED)
    cut = cut_of(source.group, committed)
    nothing = dict.fromkeys(cut.tables[TABLE], 0)  # for a table that the group did not have at the cut
    positions = {topic: cut.tables.get(name, nothing) for name, topic in tables.items()}
    _wait_readable(cluster, cut, positions)
    spans, letters = request.spans(cluster, cut.inputs)
    log = spans_to(positions, cluster.starts(positions))
    return _Asked(cut, spans, letters, log, tables, timedelta(milliseconds=min(lag_ms, _LAG_MS_MAX)))


def _later(session: SparkSession, cluster: Cluster, asked: _Asked) -> DataFrame:
    """Return the changelog records after the cut up to now, with the `table` that each record belongs to."""
    ends = cluster.stable_ends(asked.log)
    spans = {
        topic: {n: Span(span.end, max(span.end, ends[topic][n])) for n, span in parts.items()}
        for topic, parts in asked.log.items()
    }
    records = read(session, cluster.bootstrap_servers, spans)
    names = [fn.when(fn.col("topic") == topic, name) for name, topic in asked.tables.items()]
    return records.withColumn("table", fn.coalesce(*names))


def _kinds(found: DataFrame) -> dict[tuple[int, str], int]:
    """Return the number of differences, by partition and kind."""
    rows = found.groupBy("partition", "difference").count().collect()
    return {(row["partition"], row["difference"]): row["count"] for row in rows}


def _wait_readable(cluster: Cluster, cut: Cut, tables: Mapping[str, Offsets]) -> None:
    topics = {**cut.inputs, **tables}
    if beyond := first_beyond(topics, cluster.ends(topics)):
        place, offset, end = beyond
        raise InputLost(
            f"the group stands at offset {offset} of {place}, which ends at {end}: the topic was deleted and created again"
        )
    for topic, parts in topics.items():
        cluster.wait_stable(topic, parts)


def _partitions(
    cut: Cut, computed: Tables, held: Tables, different: Mapping[int, int]
) -> list[PartitionReport]:
    count = len(cut.tables[TABLE])
    expected, live = digests_of(_together(computed), count), digests_of(_together(held), count)
    return [
        PartitionReport(
            partition=number,
            inputs={topic: parts[number] for topic, parts in cut.inputs.items()},
            changelog=cut.tables[TABLE][number],
            expected_rows=expected[number]["rows"],
            live_rows=live[number]["rows"],
            expected_digest=expected[number]["digest"],
            live_digest=live[number]["digest"],
            differences=different.get(number, 0),
        )
        for number in sorted(expected)
    ]


def _together(tables: Tables) -> DataFrame:
    """Return the rows of all tables in one frame."""
    return reduce(DataFrame.unionByName, [rows.select(*ROW) for rows in tables.values()])


def _difference(row: Row, source: Source) -> Difference:
    value, key = row["live_value"], bytes(row["key"])
    found = Difference(
        partition=row["partition"],
        key=key.decode(errors="backslashreplace"),
        difference=row["difference"],
        expected=row["expected"],
        live=row["live"],
        live_value=None if value is None else bytes(value).hex(),
        table=row["table"],
    )
    if source.program is None:
        return found
    # Spark has only bytes: the group's codecs decode them.
    text, expected = source.program.text_of(row["table"], key, _in_row(row["expected"]))
    _, live = source.program.text_of(row["table"], key, _in_row(row["live"]))
    return replace(found, key=text, expected=expected, live=live)


def _differs(program: Program, row: Row) -> bool:
    """Return whether rows with different bytes also differ when the group's codecs decode them."""
    table, key, expected = row["table"], bytes(row["key"]), _in_row(row["expected"])
    if row["difference"] != DIFFERENT or expected is None:
        return not program.is_record(table, key)
    return not program.same(table, key, expected, bytes(row["live_value"]))


def _in_row(row: str | None) -> bytes | None:
    """Return the bytes of a row that Spark has written as JSON."""
    return None if row is None else b64decode(json.loads(row)["value"])


def _save(report: Report, folder: Path | RemotePath) -> None:
    try:
        write_whole(folder / "report.json", report.as_json())
        write_whole(folder / "report.html", report.as_html())
    except OSError as error:
        raise ConfigurationError(
            f"the report cannot be written to {folder} ({error}): name another --report"
        ) from error


def main(argv: Sequence[str]) -> int:
    """Run the job with these arguments, and return its exit status."""
    parser = arguments("reconcile", "Compare a group's live table with what its inputs say.")
    add = parser.add_argument
    add("--report", metavar="FOLDER", help="folder of the report, a path or a URL (GROUP.audit)")
    add(
        "--format", choices=("parquet", "delta"), default="parquet", help="format of the table of differences"
    )
    found = parser.parse_args(argv)
    session = session_of(found)
    request = AuditRequest(
        source=source_of(found),
        allow_missing=found.allow_missing,
        lake=found.lake,
        earlier=earlier_of(found, session),
        folder=path_of(found.report or f"{found.group}.audit", session),
        format=found.format,
    )
    with (
        reported_run(found, STAGES, report=str(request.folder / "report.html")) as progress,
        Cluster(found.bootstrap_servers) as cluster,
    ):
        report = reconcile(session, cluster, request, progress, now=lambda: datetime.now(UTC))
    for each in report.keys[:_PRINTED]:
        text = f"partition {each.partition}, key {each.key}: expected {each.expected}, live {each.live}"
        print(f"{each.difference}: {text}")  # noqa: T201 - a command line
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(ended(main, sys.argv[1:]))
