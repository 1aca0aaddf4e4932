"""A processor in a process of its own that stalls while a file exists: `-m tests.system.stalling KIND GROUP TOPIC`.

What it does with a record is the record's value: `hang PATH` or `retry PATH`.
"""

import sys
import time
from pathlib import Path
from typing import ClassVar

from microbatch import Batch, BatchProcessor, MicroBatch, Send
from microbatch.stores.memory import MemoryDriver
from servicekit.process.runtime import Program, Runtime, operations
from servicekit.process.service_settings import ServiceSettings
from servicekit.process.serving import serve_groups
from streamtable import Context, Group, Input, Long, Persist, Stream, String
from streamtable.errors import RetryLater


class StallingSettings(ServiceSettings):
    env_prefix: ClassVar[str] = "STALLING_"


def hold(event: str) -> None:
    what, _, path = event.partition(" ")
    while Path(path).exists():
        if what == "retry":
            raise RetryLater("the file is there")
        time.sleep(0.02)


def handle(ctx: Context[str, int], event: str) -> None:
    hold(event)
    ctx.set((ctx.value or 0) + 1)


def serve_batches(runtime: Runtime[StallingSettings], name: str, events: Stream[str, str]) -> int:
    def process(batch: Batch, _: Send) -> None:
        for record in batch.of(events):
            hold(record.value)

    group = MicroBatch(name, inputs=[events], process=process, max_wait=0.05)
    processor = BatchProcessor.from_settings(
        group,
        runtime.settings,
        store=MemoryDriver(tenant=name),
        kafka=runtime.kafka,
        metrics=runtime.measured,
    )
    with operations(runtime, "processor", lambda: processor.ready, lambda: processor.not_ready):
        processor.run()
    return 0


def main(kind: str, name: str, topic: str) -> int:
    events = Stream(topic, String(), String())

    def serve(runtime: Runtime[StallingSettings]) -> int:
        if kind == "batch":
            return serve_batches(runtime, name, events)
        return serve_groups(runtime, [Group(name, Input(events, handle), Persist(Long()))])

    return Program("stalling", StallingSettings, topic).run(serve)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
