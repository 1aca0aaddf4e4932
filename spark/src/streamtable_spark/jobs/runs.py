"""Reports of a run of a job while it works: as records of a compacted topic, and as metrics in a file.

A report that fails does not disturb the job: it is noted once on standard error, and the job continues.
"""

import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypedDict

from contracts.records import JOB_RUN, JobDifference, JobInput, JobRun
from streamtable import Avro, Emitter, Stream, String, errors
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.jobs.positions import by_place
from streamtable_spark.jobs.progress import Standing

LOOK_S: Final = 1.0
STILL_THERE_S: Final = 10.0
ENTRIES_MAX: Final = 1_000
KEYS_MAX: Final = 100
TEXT_MAX: Final = 500
"""Characters of a key or row: a record of Kafka has at most 1 MiB, and the report of the job has all of them."""
DELIVERY_S: Final = 30.0
CLOSE_S: Final = 5.0

State = Literal["running", "done", "different", "failed", "interrupted"]


class Subject(TypedDict):
    """The fields of a record that identify the run; they do not change while it works.

    Attributes:
        run: The unique name of the run.
        job: The name of the job.
        group: The group whose table is computed; empty if there is none.
        as_group: The group whose table a rebuild writes; empty if there is none.
        lake: The folder of the lake; empty if there is none.
        report: The path of the report or manifest; empty if there is none.
        version: The version of the jobs' code.
        started_at: The start, in milliseconds since 1970 in UTC.
    """

    run: str
    job: str
    version: str
    started_at: int
    group: str
    as_group: str
    lake: str
    report: str


class Reporter(Protocol):
    """A destination for the reports of a run."""

    def report(self, record: JobRun) -> None:
        """Report the state of the run. Raises `OSError` or `StreamtableError` if that fails."""
        ...

    def close(self) -> None: ...


def record_of(subject: Subject, standing: Standing, at: int, state: State, error: str = "") -> JobRun:
    """Return the record of a run's current state.

    Args:
        subject: The identity of the run.
        standing: Its progress.
        at: The time, in milliseconds since 1970.
        state: The state of the run.
        error: The failure and its remedy.
    """
    inputs = [
        JobInput(topic=place.topic, partition=place.partition, start=span.start, end=span.end)
        for place, span in by_place(standing.inputs)
    ]
    keys = [
        JobDifference(
            partition=each.partition,
            key=_shortened(each.key),
            difference=each.difference,
            expected=_shortened(each.expected or ""),
            live=_shortened(each.live or each.live_value or ""),
        )
        for each in standing.keys
    ]
    return {
        **subject,
        "host": socket.gethostname(),
        "at": at,
        "finished_at": 0 if state == "running" else at,
        "state": state,
        "error": _shortened(error),
        "stage": standing.stage,
        "stages_done": standing.done,
        "stages": standing.stages,
        "records": standing.records,
        "inputs": inputs[:ENTRIES_MAX],
        "counts": dict(standing.counts),
        "differences": -1 if standing.differences is None else standing.differences,
        "keys": keys[:KEYS_MAX],
        "summary": standing.summary,
        "omitted": max(0, len(inputs) - ENTRIES_MAX) + max(0, len(keys) - KEYS_MAX),
    }


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}... ({len(text)} characters)"


class RunsTopic:
    """The compacted topic of all runs: the latest record of each is kept.

    Args:
        kafka: The Kafka cluster of the topic.
        topic: The name of the topic.

    Raises:
        ConfigurationError: The Kafka client refuses its settings.
    """

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._topic = topic
        stream = Stream(topic, key=String(), value=Avro(JOB_RUN))
        try:
            self._emitter = Emitter(stream, kafka.client(), delivery_timeout=DELIVERY_S)
        except errors.ConfigurationError as error:
            raise ConfigurationError(str(error)) from error

    def __str__(self) -> str:
        return f"topic {self._topic}"

    def report(self, record: JobRun) -> None:
        self._emitter.emit(record["run"], record)

    def close(self) -> None:
        """Wait for acknowledgements. Raises the first failure of a report."""
        self._emitter.close(CLOSE_S)


@dataclass(eq=False)
class Run:
    """One run, reported by a background thread: at its start, when its progress changes, every ten seconds, and at its end.

    Args:
        subject: The identity of the run.
        reporters: The destinations of the reports.
        standing: Returns the progress; a new object after each change.
        now: The time, in milliseconds since 1970.
        look_s: The interval between two checks for progress, in seconds.
    """

    _subject: Subject
    _reporters: Sequence[Reporter]
    _standing: Callable[[], Standing]
    _now: Callable[[], int]
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        self._complained: set[Reporter] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="run", daemon=True)

    def begin(self) -> None:
        self._tell("running")
        self._thread.start()

    def end(self, state: State, error: str = "") -> None:
        """End the run, and wait some seconds at most until the last report is delivered."""
        self._stopping.set()
        self._thread.join()
        self._tell(state, error)
        for reporter in self._reporters:
            self._guarded(reporter, reporter.close)

    def _look(self) -> None:
        reported, reported_at = self._standing(), self._now()
        while not self._stopping.wait(self.look_s):
            if self._standing() is not reported or self._now() - reported_at >= STILL_THERE_S * 1000:
                reported, reported_at = self._standing(), self._now()
                self._tell("running")

    def _tell(self, state: State, error: str = "") -> None:
        record = record_of(self._subject, self._standing(), self._now(), state, error)
        for reporter in self._reporters:
            self._guarded(reporter, lambda reporter=reporter: reporter.report(record))  # type: ignore[misc]  # bound at once

    def _guarded(self, reporter: Reporter, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, errors.StreamtableError) as error:
            if reporter not in self._complained:
                self._complained.add(reporter)
                print(f"\nnote: this run is not reported to {reporter}: {error}", file=sys.stderr)  # noqa: T201 - a command line
