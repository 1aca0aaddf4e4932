"""The reports of a run, and their times."""

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from contracts.records import JOB_RUN, JobRun
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline
from streamtable import Avro
from streamtable_spark.errors import InputLost
from streamtable_spark.jobs.kafka import kafka_of
from streamtable_spark.jobs.positions import Span
from streamtable_spark.jobs.progress import Standing
from streamtable_spark.jobs.report import Difference
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.jobs.runs import Run, Subject, record_of

SUBJECT = Subject(
    run="r-1",
    job="reconcile",
    version="0.1",
    started_at=1_000,
    group="click-count",
    report="here",
    as_group="",
    lake="",
)
SERVICES = Avro(JOB_RUN)


class Reported(list[JobRun]):
    """A reporter that may fail."""

    broken = False
    closed = False

    __hash__ = object.__hash__  # type: ignore[assignment]  # it is what it is, not what it holds

    def report(self, record: JobRun) -> None:
        if self.broken:
            raise OSError("no room")
        self.append(record)

    def close(self) -> None:
        self.closed = True


def wait(condition: Callable[[], bool]) -> None:
    deadline = Deadline(20)
    while not condition():
        assert not deadline.passed()
        time.sleep(0.02)


def arguments(**given: Any) -> argparse.Namespace:
    run: dict[str, Any] = {"job": "etl", "group": "", "as_group": "", "lake": "lake"}
    places: dict[str, Any] = {"bootstrap_servers": None, "runs_topic": None, "metrics_dir": None}
    return argparse.Namespace(**(run | places | given))


def test_services_can_read_the_record() -> None:
    standing = Standing(
        stage="comparing",
        done=2,
        stages=4,
        inputs={"clicks": {1: Span(5, 9), 0: Span(0, 3)}},
        counts={"events": 7},
        differences=1,
        keys=[Difference(0, "alice", "different", '{"count": 2}', None, "c301")],
        summary="1 key differs",
    )
    record = record_of(SUBJECT, standing, 2_000, "different")
    assert SERVICES.decode(SERVICES.encode(record)) == record
    assert (record["records"], record["finished_at"], record["state"]) == (7, 2_000, "different")
    assert [(each["partition"], each["start"], each["end"]) for each in record["inputs"]] == [
        (0, 0, 3),
        (1, 5, 9),
    ]
    assert record["keys"][0]["live"] == "c301"


def test_long_lists_are_cut_and_say_so() -> None:
    standing = Standing(inputs={"clicks": {number: Span(0, 1) for number in range(1_005)}})
    record = record_of(SUBJECT, standing, 2_000, "running")
    assert (len(record["inputs"]), record["omitted"], record["finished_at"]) == (1_000, 5, 0)


def test_the_report_of_large_rows_fits_into_a_record_of_kafka() -> None:
    row = "ä" * 1_000_000
    keys = [Difference(0, row, "different", row, row, None)] * 100
    standing = Standing(
        inputs={"t" * 249: {number: Span(2**40, 2**41) for number in range(1_000)}},
        differences=100,
        keys=keys,
    )
    record = record_of(SUBJECT, standing, 2_000, "failed", error=row)
    assert record["keys"][0]["live"] == f"{'ä' * 500}... (1000000 characters)"
    assert len(SERVICES.encode(record)) < 1_000_000


def test_a_run_is_reported_at_its_start_when_its_progress_changes_and_at_its_end() -> None:
    reported, standing = Reported(), [Standing()]
    run = Run(SUBJECT, [reported], lambda: standing[-1], lambda: 5_000, look_s=0.01)
    run.begin()
    standing.append(Standing(stage="one", stages=2))
    wait(lambda: len(reported) == 2)
    run.end("done")
    assert [(each["stage"], each["state"]) for each in reported] == [
        ("", "running"),
        ("one", "running"),
        ("one", "done"),
    ]
    assert reported.closed


def test_a_run_without_news_says_every_ten_seconds_that_it_is_there() -> None:
    reported, standing, times = Reported(), Standing(), iter(range(0, 10_000_000, 4_000))
    run = Run(SUBJECT, [reported], lambda: standing, lambda: next(times), look_s=0.01)
    run.begin()
    wait(lambda: len(reported) > 3)
    run.end("done")
    gaps = [later["at"] - earlier["at"] for earlier, later in pairwise(reported[1:-1])]
    assert min(gaps) >= 10_000


def test_a_report_that_fails_is_noted_once_and_disturbs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    reported, broken, standing = Reported(), Reported(), [Standing()]
    broken.broken = True
    run = Run(SUBJECT, [broken, reported], lambda: standing[-1], lambda: 5_000, look_s=0.01)
    run.begin()
    standing.append(Standing(stage="one"))
    wait(lambda: len(reported) == 2)
    run.end("done")
    assert len(reported) == 3
    assert capsys.readouterr().err.count("no room") == 1


def test_the_topic_holds_the_latest_record_of_each_run(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("runs", partitions=1, config={"cleanup.policy": "compact"})
    found = arguments(
        bootstrap_servers=kafka_of(broker.bootstrap_servers, {}), runs_topic=topic, metrics_dir=tmp_path
    )
    with reported_run(found, ["read", "write"]) as progress:
        progress.reads({"clicks": {0: Span(0, 3)}})
        progress.stage("read")
        progress.done(records=3, summary="3 records")
    with pytest.raises(InputLost), reported_run(found, ["read"]):
        raise InputLost("clicks[0] begins at offset 7")
    with pytest.raises(ValueError, match="a piece of a record"), reported_run(found, ["read"]):
        raise ValueError("a piece of a record")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: dict[bytes, list[JobRun]] = {}
    try:
        wait(
            lambda: (
                _poll(consumer, records)
                and all(each[-1]["finished_at"] for each in records.values())
                and len(records) == 3
            )
        )
    finally:
        consumer.close()
    first, second, third = records.values()
    assert (first[0]["state"], first[-1]["state"], first[-1]["records"]) == ("running", "done", 3)
    assert first[-1]["summary"] == "3 records"
    assert first[-1]["inputs"] == [{"topic": "clicks", "partition": 0, "start": 0, "end": 3}]
    assert (second[-1]["state"], second[-1]["error"]) == ("failed", "clicks[0] begins at offset 7")
    assert (third[-1]["state"], third[-1]["error"]) == ("failed", "ValueError: the job's last line says more")
    assert 'streamtable_job_failed{group="",job_name="etl"} 1.0' in (tmp_path / "etl.prom").read_text()


def _poll(consumer: Consumer, records: dict[bytes, list[JobRun]]) -> bool:
    for message in consumer.consume(100, 0.1):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        record = SERVICES.decode(value)
        assert record["run"] == key.decode()
        records.setdefault(key, []).append(record)
    return True


def test_a_topic_that_is_not_there_is_a_note_and_no_error(
    broker: Broker, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    found = arguments(
        bootstrap_servers=kafka_of(broker.bootstrap_servers, {}), runs_topic=topics.name("nowhere")
    )
    with reported_run(found, ["read"]) as progress:
        progress.done()
    first, *rest = capsys.readouterr().err.strip().splitlines()
    assert json.loads(first)["state"] == "done"
    assert f"note: this run is not reported to topic {topics.name('nowhere')}" in "\n".join(rest)
