"""A lake from a real Kafka. The tests build on each other: one lake grows from test to test."""

import importlib
import io
import json
import re
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from spark.tests.lake.runs import (
    ENDS,
    Runs,
    assert_gold_is_what_kafka_says,
    assert_the_lake_is_what_kafka_has,
    crash_at,
)
from spark.tests.lake.stage import Stage

from click_count.topics import USER_CLICKS, by_record
from streamtable_spark.demo import LAKE
from streamtable_spark.jobs import backfill, etl
from streamtable_spark.jobs.backfill import DateRange
from streamtable_spark.jobs.formats import DeltaTables
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.lake import Lake
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.transforms.once import accepted
from streamtable_testing import Tester

DEMO = ["--graph", "streamtable_spark.demo:LAKE"]
PAGE = (Path(__file__).parents[3] / "docs/how-to/run-the-etl.md").read_text("utf-8")


@pytest.fixture(scope="module")
def runs(spark: SparkSession, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A lake after a first run over the sent records, in several batches."""
    stage.send(320)
    made = Runs(spark, stage, tmp_path_factory.mktemp("etl") / "lake")
    counts = made.run(batch=250)
    assert counts["batches"] > 1
    return made


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--lake", "/lake/*"], "taken for a pattern"),
        (["--lake", ""], "a folder is needed"),
        (["--lake", "/lake", *DEMO, "--topics", "clicks"], "--topics 'clicks'"),
        (["--lake", "/lake"], "--graph MODULE:NAME"),
        (["--lake", "/lake", "--graph", "nowhere:LAKE"], "No module named 'nowhere'"),
        (
            ["--lake", "/lake", "--graph", "./shop:ORDERS"],
            "a module name is needed, not a path: shop:ORDERS",
        ),
        (
            ["--lake", "/lake", "--graph", "shop.py:ORDERS"],
            "a module name is needed, not a path: shop:ORDERS",
        ),
        (["--lake", "/lake", "--graph", "inventory.flow:NONE"], "no 'NONE'; its groups and flows: FLOW"),
        (["--lake", "/lake", "--codecs", "orders=avro:/no.avsc"], "/no.avsc cannot be read"),
        (["--lake", "/lake", "--codecs", "orders=xml"], "avro:FILE"),
        (["--lake", "/lake", "--codecs", "orders=string", "--ids", "orders=id"], "no field 'id'"),
        (["--lake", "/lake", "--codecs", "orders=json", "--ids", "sales=id"], "--ids sales"),
        (["--lake", "/lake", *DEMO, "--batch", "0"], "--batch 0"),
        (["--lake", "/lake", *DEMO, "--memory", "1"], "memory '1'"),
        (["--lake", "/lake", *DEMO, "--cores", "0"], "0 cores"),
    ],
)
def test_a_wrong_argument_ends_the_job_with_one_line_that_names_it(
    wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(etl.work, ["--bootstrap-servers", "127.0.0.1:1", *wrong]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line


@pytest.mark.broker
def test_the_lake_has_every_committed_record_once_and_none_of_an_aborted_transaction(runs: Runs) -> None:
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_kafka_says(runs)
    reasons = {row["reason"] for row in runs.rows("quarantine", "reason")}
    assert {"no value", "no key", "the key is not UTF-8"} <= reasons


@pytest.mark.broker
def test_the_table_of_the_stream_is_the_table_of_the_batch_for_the_same_records(runs: Runs) -> None:
    group = by_record("click-count")
    silver = runs.table("silver/user-clicks").withColumns({"id": fn.col("event.id"), "retry": fn.lit(False)})
    batch = {row["key"]: row["count"] for row in accepted(silver).groupBy("key").count().collect()}
    with Tester() as tester:
        tester.run(group)
        for key, value in runs.stage.committed(runs.stage.clicks).values():
            tester.emit_raw(USER_CLICKS.name, key, value)
        tester.commit()
        assert dict(tester.table(group)) == batch


@pytest.mark.broker
def test_a_run_without_new_records_changes_nothing(runs: Runs) -> None:
    before = runs.table("bronze").count()
    assert runs.run().get("user-clicks", 0) == 0
    assert runs.table("bronze").count() == before


@pytest.mark.broker
def test_results_that_are_computed_a_second_time_are_the_same(runs: Runs) -> None:
    name = "gold/status_history"
    tables, result = runs.tables, LAKE.results["status_history"]
    assert isinstance(tables, DeltaTables)
    some = runs.table(name).where("until IS NULL")
    tables.upsert(name, some, result.keys, some)
    assert_gold_is_what_kafka_says(runs)


@pytest.mark.broker
@pytest.mark.faults_long("a minute: a batch after another, and maintenance beside them")
def test_files_are_compacted_while_the_etl_runs_and_neither_disturbs_the_other(runs: Runs) -> None:
    runs.stage.send(120)
    amid = threading.Event()

    def reached(step: str) -> None:
        if step == "batch written":
            amid.set()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(runs.run, batch=60, reached=reached)
        while not amid.wait(0.05):
            assert not job.done()
        done = runs.maintain()
    assert done["bronze"]["compacted"] > 1
    assert job.result()["batches"] > 1
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_kafka_says(runs)


@pytest.mark.broker
def test_days_that_are_recomputed_come_out_the_same(runs: Runs) -> None:
    columns = ("partition", "offset", "key", "event", "repeat")
    before = sorted(map(str, runs.rows("silver/user-clicks", *columns)))
    recompute(runs)
    assert sorted(map(str, runs.rows("silver/user-clicks", *columns))) == before


def recompute(runs: Runs) -> None:
    """Recompute yesterday and today, which are all days of the lake."""
    today = datetime.now(UTC).date()
    backfill.backfill(
        Lake(runs.spark, str(runs.folder)),
        runs.contents,
        DateRange(today - timedelta(1), today + timedelta(1)),
        Progress(backfill.STAGES, io.StringIO(), time.monotonic),
    )


@pytest.mark.broker
@pytest.mark.faults_long("three runs of jobs over the whole lake")
def test_days_recomputed_amid_a_batch_come_out_the_same_and_the_next_run_takes_what_came_since(
    runs: Runs,
) -> None:
    columns = ("partition", "offset", "key", "event", "repeat")
    runs.stage.send(80)
    with pytest.raises(ENDS):
        runs.run(reached=crash_at("batch written"))
    before = sorted(map(str, runs.rows("silver/user-clicks", *columns)))
    recompute(runs)
    assert sorted(map(str, runs.rows("silver/user-clicks", *columns))) == before
    with pytest.raises(ENDS):
        runs.run(reached=crash_at("batches read"))
    assert_the_lake_is_what_kafka_has(runs)
    assert runs.run().get("user-clicks", 0) == 0, "all was read, and the results follow"
    assert_gold_is_what_kafka_says(runs)


@pytest.mark.broker
def test_what_the_page_shows_reads_the_tables(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"spark": runs.spark}
    # A second `connect` would set the session of all tests again, and this lake is young.
    page = PAGE
    for shown, here in (
        ('connect("look")', "spark"),
        ("build/lake", str(runs.folder)),
        ('"versionAsOf", 3', '"versionAsOf", 0'),
    ):
        assert shown in page
        page = page.replace(shown, here)
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(snippet, names)
    assert names["silver"].count() == runs.table("silver/user-clicks").count()
    assert names["before"].count() < names["silver"].count()
    assert "the key is not UTF-8" in capsys.readouterr().out


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the schemas and the module that the page names."""
    (tmp_path / "schemas").mkdir()
    fields = [{"name": "number", "type": "string"}]
    for name in ("order", "order-1"):
        schema = {"type": "record", "name": "Order", "fields": fields}
        (tmp_path / "schemas" / f"{name}.avsc").write_text(json.dumps(schema))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/groups.py").write_text(
        "from click_count.topics import by_count\n\nORDERS = by_count('x')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.delitem(sys.modules, "shop.groups", raising=False)


@pytest.mark.parametrize("command", re.findall(r"^streamtable-spark ((?:.*\\\n)*.*)", PAGE, re.MULTILINE))
def test_the_commands_of_the_page_have_arguments_that_the_jobs_know(
    command: str, capsys: pytest.CaptureFixture[str], shop: None
) -> None:
    del shop  # the prerequisites of the page
    name, *arguments = shlex.split(command.replace("\\\n", " "))
    work = importlib.import_module(f"streamtable_spark.jobs.{name}").work
    assert ended(work, [*arguments, "--memory", "none"]) == 2
    assert "memory 'none'" in capsys.readouterr().err
