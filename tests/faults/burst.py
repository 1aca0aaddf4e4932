"""A program that emits as fast as it can and records acknowledged events in a file, to be killed by a test."""

import argparse
from concurrent.futures import Future
from itertools import count
from pathlib import Path

from streamtable import Kafka, Long, Stream, String
from streamtable.base.types import Ack
from streamtable.emitter import Emitter

EVENTS_PER_KEY = 100


def stream(topic: str) -> Stream[str, int]:
    return Stream(topic, key=String(), value=Long())


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "acknowledged"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--first", type=int, required=True)
    given = parser.parse_args()
    with (
        Path(given.acknowledged).open("a", buffering=1) as acknowledged,
        Emitter(stream(given.topic), Kafka(given.bootstrap)) as emitter,
    ):
        for number in count(given.first):

            def note(answer: Future[Ack], number: int = number) -> None:
                if answer.exception() is None:
                    acknowledged.write(f"{number}\n")

            emitter.emit(f"k{number % EVENTS_PER_KEY}", number).add_done_callback(note)


if __name__ == "__main__":
    main()
