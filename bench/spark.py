"""Rows about Spark's jobs: programs with their usual settings, on two cores of this machine, one after another.

They build on each other: they count clicks in the lake that the ETL has filled, and audit the table that was
rebuilt. Beside two of them DuckDB has the same question for the same files, and must come to the same answer.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import stages
from bench.clicks import Clicks
from bench.family import FamilyProgram
from bench.figures import Figure
from bench.job import Job
from bench.lake import BATCHES, Batch, batches, objects
from bench.measure import Program, RowFailed, python
from bench.plan import Step
from bench.site import Site
from bench.streams import RATE

from streamtable import Avro

CORES = 2
USERS = 100_000
RECORDS_OF_A_KEY = 5
SKETCH_ERROR = 0.05
BASELINES = {
    "spark_parquet": "spark_source",
    "spark_etl_bronze": "spark_source",
    "spark_etl_bronze_warm": "spark_source",
    "spark_etl_silver": "spark_source",
    "spark_etl_silver_warm": "spark_source",
    "spark_from_avro_bronze": "spark_etl_bronze",
    "spark_from_avro_bronze_warm": "spark_etl_bronze_warm",
    "spark_from_avro_silver": "spark_etl_silver",
    "spark_from_avro_silver_warm": "spark_etl_silver_warm",
    "spark_from_avro_unchecked": "spark_etl_silver_warm",
    "spark_count_kafka": "spark_source",
    "spark_count_from_avro": "spark_count_kafka",
    "spark_count_silver": "duckdb_count",
    "spark_count_kafka_1_core": "spark_count_kafka",
    "spark_count_silver_1_core": "spark_count_silver",
    "spark_reach_exact": "duckdb_reach",
    "spark_reach_sketch": "spark_reach_exact",
}
"""The row that each row is compared with."""
_LIMIT_SECONDS = 400.0
_INPUT = "user-clicks"
_DUCKDB = "lake_sql"
_SHUFFLES = ("kafka", "silver")
_LAYERS = ("bronze", "silver", "bronze_warm", "silver_warm")
_ETL_ROWS = tuple(f"spark_etl_{layer}" for layer in _LAYERS)
_FROM_AVRO_ROWS = tuple(f"spark_from_avro_{layer}" for layer in (*_LAYERS, "unchecked"))


class SparkRows:
    """The rows of one run, and what they hand to each other."""

    def __init__(self) -> None:
        self._lake: Path | None = None
        self._etl: list[Figure] = []
        self._rebuilt = ""
        self._peaks: list[float] = []

    def steps(self) -> list[Step]:
        """All, each after those that it is compared with."""
        return [
            Step(("spark_source", "spark_parquet"), self.source),
            Step((*_ETL_ROWS, "spark_etl", *stages.ROWS), self.etl),
            Step(_FROM_AVRO_ROWS, self.from_avro),
            Step(("duckdb_count",), self.duckdb_count),
            Step(
                (
                    "spark_count_kafka",
                    "spark_count_from_avro",
                    "spark_count_silver",
                    "spark_count_kafka_shuffle",
                    "spark_count_silver_shuffle",
                ),
                partial(self.count, cores=CORES),
            ),
            Step(("spark_count_kafka_1_core", "spark_count_silver_1_core"), partial(self.count, cores=1)),
            Step(("spark_rebuild",), self.rebuild),
            Step(("spark_reconcile",), self.reconcile),
            Step(("duckdb_reach", "spark_reach_exact", "spark_reach_sketch"), self.reach),
            Step(("spark_memory",), self.memory),
        ]

    def source(self, site: Site) -> list[Figure]:
        """Read all clicks with warm Java and throw them away; and write them to plain Parquet."""
        clicks = _clicks(site)
        job = Job(site.broker, site.clicks(clicks), records=clicks.records, partitions=clicks.partitions)
        job = replace(job, clients=CORES, state_dir=str(site.state("plain") / "parquet"))
        with self._start(site, "spark_source", python("bench.programs.spark_source"), job) as program:
            program.end()
        self._peaks.append(program.rss_mb)
        return [
            replace(_rate(row, found["records"], found["seconds"], program), cpu_seconds=found["cpu_seconds"])
            for row, found in zip(("spark_source", "spark_parquet"), program.results, strict=True)
        ]

    def etl(self, site: Site) -> list[Figure]:
        """Measure from a batch's plan to its commit in bronze, and from there to its commit in silver: for all batches
        (the first starts with a cold JVM), and for the batches after the first."""
        self._lake_of(site)
        return self._etl

    def from_avro(self, site: Site) -> list[Figure]:
        """Measure the same for a lake that Spark's own functions fill, and all of bronze decoded and written without any check."""
        clicks = _clicks(site)
        topic, known = site.clicks(clicks), _asked(site, "events", self._lake_of(site))[0]
        lake = site.state("from-avro") / "tables"
        job = Job(site.broker, topic, records=clicks.records, partitions=clicks.partitions)
        job = replace(job, state_dir=str(lake), clients=CORES)
        with self._start(site, "spark_from_avro", python("bench.programs.spark_from_avro"), job) as program:
            program.end()
        for folder in (lake, lake / "unchecked"):
            found = _asked(site, "events", folder)[0]
            _same(f"rows and events of {folder.name}", found, {**known, "seconds": found["seconds"]})
        (alone,) = (found for found in program.results if found.get("name") == "unchecked")
        rate = _rate("spark_from_avro_unchecked", alone["records"], alone["seconds"], program)
        return [
            *_layer_rates("spark_from_avro", batches(lake, _INPUT, topic), program),
            replace(rate, cpu_seconds=alone["cpu_seconds"]),
        ]

    def count(self, site: Site, *, cores: int) -> list[Figure]:
        """Clicks of each user, from Kafka and from silver, with a warm JVM; and the bytes shuffled for each click."""
        clicks = _clicks(site)
        job = Job(site.broker, site.clicks(clicks), records=clicks.records, partitions=clicks.partitions)
        job = replace(job, state_dir=str(self._lake_of(site)), clients=cores)
        name = f"spark_count_{cores}"
        with self._start(site, name, python("bench.programs.spark_count"), job) as program:
            program.end()
        self._peaks.append(program.rss_mb)
        for found in program.results:
            _same(f"clicks from {found['name']}", found["clicks"], found["records"])
        suffix = "" if cores == CORES else "_1_core"
        rates = [
            replace(
                _rate(f"spark_count_{found['name']}{suffix}", found["records"], found["seconds"], program),
                cpu_seconds=found["cpu_seconds"],
            )
            for found in program.results
        ]
        shuffles = [
            Figure(
                f"spark_count_{found['name']}_shuffle",
                found["shuffle_bytes"] / found["records"],
                "bytes/record",
            )
            for found in program.results
            if found["name"] in _SHUFFLES
        ]
        return rates + shuffles if cores == CORES else rates

    def duckdb_count(self, site: Site) -> list[Figure]:
        """Measure the same count of the same silver files with DuckDB."""
        records = _clicks(site).records
        found, program = _asked(site, "clicks", self._lake_of(site))
        _same("clicks in silver", found["total"], records)
        return [_rate("duckdb_count", records, found["seconds"], program)]

    def rebuild(self, site: Site) -> list[Figure]:
        """Measure the rebuild, from the start of the job to its end."""
        return [self._rebuild(site)]

    def reconcile(self, site: Site) -> list[Figure]:
        """The table that was rebuilt, from the start of the job to its end."""
        if not self._rebuilt:
            self._rebuild(site)
        clicks = _table_clicks(site)
        report = site.state("audit")
        done, _ = self._job(
            site,
            "spark_reconcile",
            "reconcile",
            [*_of_group(self._rebuilt, clicks), "--report", str(report)],
        )
        found = json.loads((report / "report.json").read_text())
        _same("differences", found["differences"], 0)
        _same("events that were audited", found["events"], clicks.records)
        site.delete(clicks.topic, self._rebuilt)
        return [replace(done, records=clicks.records)]

    def reach(self, site: Site) -> list[Figure]:
        """Compute the reach of 35 million pairs of a tweet and a follower: exactly, by sketches of authors, and by DuckDB."""
        lake = site.state("reach-lake")
        _duckdb(
            site, Job(site.broker, handler="make", records=_edges(site), state_dir=str(lake), clients=CORES)
        )
        known, engine = _asked(site, "reach", lake)
        pairs = known["pairs"]
        with self._start(site, "spark_reach", _job_command("reach", ["--lake", str(lake)])) as program:
            program.end()
        self._peaks.append(program.rss_mb)
        ways = {way["name"]: way for way in objects(site.log("spark_reach")) if "reach" in way}
        _same("the sum of all reaches", ways["exact"]["reach"], known["total"])
        off = abs(ways["hll"]["reach"] / known["total"] - 1)
        if off > SKETCH_ERROR:
            raise RowFailed(f"wrong: the sketches are {off:.1%} off")
        return [
            Figure("duckdb_reach", known["seconds"], "s", rss_mb=engine.rss_mb, records=pairs),
            *(
                _compared(Figure(row, ways[way]["seconds"], "s", rss_mb=program.rss_mb, records=pairs))
                for row, way in (("spark_reach_exact", "exact"), ("spark_reach_sketch", "hll"))
            ),
        ]

    def memory(self, _: Site) -> list[Figure]:
        """The highest of all the rows before."""
        if not self._peaks:
            raise RowFailed("no other row was measured")
        return [Figure("spark_memory", max(self._peaks), "MB", rss_mb=max(self._peaks))]

    # ---- what more than one row needs --------------------------------------------------------------------------------

    def _lake_of(self, site: Site) -> Path:
        """The lake with all clicks; filled when first asked for."""
        if self._lake is None:
            clicks = _clicks(site)
            lake = site.state("lake") / "tables"
            topic = site.clicks(clicks)
            arguments = ["--graph", "streamtable_spark.demo:LAKE", "--topics", f"{_INPUT}={topic}"]
            arguments += ["--batch", str(int(clicks.records / BATCHES))]
            command = [*python("bench.programs.spark_etl"), "--cores", str(CORES)]
            command += ["--bootstrap-servers", site.broker, "--lake", str(lake), *arguments]
            whole, program = self._run(site, "spark_etl", command)
            found = batches(lake, _INPUT, topic)
            _same("records of all batches", sum(batch.records for batch in found), clicks.records)
            self._etl = _layer_rates("spark_etl", found, program)
            self._etl.append(replace(whole, records=clicks.records))
            self._etl += stages.figures(self._etl[-1], program.started, program.results)
            self._lake = lake
        return self._lake

    def _rebuild(self, site: Site) -> Figure:
        clicks = _table_clicks(site)
        topic, group, rebuilt = site.clicks(clicks), site.group("rebuild"), site.group("rebuilt")
        manifest = site.state(rebuilt) / "manifest.json"
        done, _ = self._job(
            site,
            "spark_rebuild",
            "rebuild",
            [*_of_group(group, clicks), "--as", rebuilt, "--manifest", str(manifest)],
        )
        job = Job(site.broker, topic, records=clicks.records, partitions=clicks.partitions)
        site.check_counts(f"{rebuilt}-table", job, Avro("long").decode)
        self._rebuilt = rebuilt
        return replace(done, records=clicks.records)

    def _job(self, site: Site, row: str, module: str, arguments: Sequence[str]) -> tuple[Figure, Program]:
        """One of the jobs, from the start of its process to its end: seconds."""
        return self._run(site, row, _job_command(module, ["--bootstrap-servers", site.broker, *arguments]))

    def _run(self, site: Site, row: str, command: Sequence[str]) -> tuple[Figure, Program]:
        with self._start(site, row, command) as program:
            program.end()
            ended = program.now()
        self._peaks.append(program.rss_mb)
        seconds = ended.time - program.started
        return Figure(row, seconds, "s", cpu_seconds=ended.cpu, rss_mb=program.rss_mb), program

    def _start(self, site: Site, name: str, command: Sequence[str], job: Job | None = None) -> Program:
        spilled = {"SPARK_LOCAL_DIRS": str(site.state("spill"))}
        environment = {**(job or Job(site.broker)).environment(), **spilled}
        return FamilyProgram(command, environment, site.log(name), _LIMIT_SECONDS)


def _asked(site: Site, question: str, lake: Path) -> tuple[dict[str, Any], Program]:
    job = Job(site.broker, handler=question, state_dir=str(lake), clients=CORES)
    program = _duckdb(site, job)
    return program.results[-1], program


def _duckdb(site: Site, job: Job) -> Program:
    with site.start(_DUCKDB, job, f"duckdb-{job.handler}") as program:
        program.end()
    return program


def _job_command(module: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"streamtable_spark.jobs.{module}", *arguments, "--cores", str(CORES)]


def _of_group(group: str, clicks: Clicks) -> list[str]:
    return ["--group", group, "--scenario", "click-count", "--topic", f"{_INPUT}={clicks.topic}"]


def _clicks(site: Site) -> Clicks:
    return Clicks(site.sizes.batch, USERS, ids=True)


def _table_clicks(site: Site) -> Clicks:
    """Return clicks of so many users that the table has a million rows for five million clicks."""
    return Clicks(site.sizes.batch, site.sizes.batch // RECORDS_OF_A_KEY, ids=True)


def _edges(site: Site) -> int:
    return 2 * site.sizes.batch // 5


def _rate(row: str, records: int, seconds: float, program: Program) -> Figure:
    return _compared(Figure(row, records / seconds, RATE, rss_mb=program.rss_mb, records=records))


def _layer_rates(job: str, found: Sequence[Batch], program: Program) -> list[Figure]:
    """The rates of a job's rows in `_LAYERS`: of all batches, and of those after the first."""
    rates = []
    for suffix, part in (("", found), ("_warm", found[1:])):
        records = sum(batch.records for batch in part)
        for layer, seconds in (
            ("bronze", sum(batch.bronze for batch in part)),
            ("silver", sum(batch.silver for batch in part)),
        ):
            rates.append(_rate(f"{job}_{layer}{suffix}", records, seconds, program))
    return rates


def _compared(figure: Figure) -> Figure:
    return replace(figure, baseline=BASELINES.get(figure.name))


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise RowFailed(f"wrong: {what} come to {found}, not to {expected}")
