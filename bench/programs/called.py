"""Measures a group that makes calls: its results a second, and the latency of the records of its other input."""

import os
import threading
import time

from bench.figures import percentile
from bench.job import Job
from bench.programs.calling import streams
from bench.programs.marks import tell
from confluent_kafka import Consumer, TopicPartition

from streamtable import Emitter, Kafka, Long

BESIDE_RATE = 200
_SETTLE_SECONDS = 4.0  # until the first calls are answered, and the processes have warmed up
_QUIET_SECONDS = 20.0


def main() -> None:
    job = Job.from_environment(os.environ)
    requests, beside, out = streams(job)
    consumer = Consumer(
        {
            "bootstrap.servers": job.broker,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(out.name, number, 0) for number in range(job.partitions)])
    with Emitter(requests, Kafka(job.broker)) as calls, Emitter(beside, Kafka(job.broker)) as others:
        others.emit_now("warm-up", 0)
        while (first := consumer.poll(_QUIET_SECONDS)) is None or first.key() != b"warm-up":
            assert first is not None, "the processor does not run"
        begin = time.time() + _SETTLE_SECONDS
        end = begin + job.seconds
        senders = [
            threading.Thread(target=_send, args=(emitter, rate, end))
            for emitter, rate in ((calls, job.rate), (others, BESIDE_RATE))
            if rate
        ]
        for sender in senders:
            sender.start()
        milliseconds, results = _read(consumer, begin, end)
        for sender in senders:
            sender.join()
    consumer.close()
    tell(
        {
            "p50": percentile(milliseconds, 50),
            "p99": percentile(milliseconds, 99),
            "rate": results / job.seconds,
            "records": len(milliseconds),
        }
    )


def _read(consumer: Consumer, begin: float, end: float) -> tuple[list[float], int]:
    """Return the milliseconds of each record beside the calls, and the number of their results, between two times."""
    milliseconds: list[float] = []
    results = 0
    while (now := time.time()) < end:
        message = consumer.poll(0.05)
        if message is None or now < begin:
            continue
        if (message.key() or b"").startswith(b"call-"):
            results += 1
        else:
            milliseconds.append(time.time() * 1000 - Long().decode(message.value() or b"") / 1000)
    return milliseconds, results


def _send(emitter: Emitter[str, int], rate: int, end: float) -> None:
    """Emit records of different keys with the time in microseconds."""
    began, number = time.time(), 0
    while (due := began + number / rate) < end:
        if (wait := due - time.time()) > 0:
            time.sleep(wait)
        emitter.emit(f"{number}", int(time.time() * 1_000_000))
        number += 1


if __name__ == "__main__":
    main()
