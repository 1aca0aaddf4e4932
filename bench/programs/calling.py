"""A group that makes calls for the records of one input, and answers those of another one itself.

A call takes a second of a clock, and no server: what is measured is the library.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.job import Job
from bench.programs.marks import mark

from streamtable import App, Context, Group, Guarantee, Input, Kafka, Long, Output, Persist, Stream, String
from streamtable.observe import configure_logging
from streamtable_calls import Call

CALL_SECONDS = 1.0


def streams(job: Job) -> tuple[Stream[str, int], Stream[str, int], Stream[str, int]]:
    """Return the stream of requests, the stream beside it, and the output of both."""
    names = (job.topic, job.second, f"{job.group}-out")
    requests, beside, out = (Stream(name, key=String(), value=Long()) for name in names)
    return requests, beside, out


def graph(job: Job) -> Group[str, int]:
    requests, beside, out = streams(job)

    async def answer(request: int) -> int:
        await asyncio.sleep(CALL_SECONDS)
        return request

    def answered(ctx: Context[str, int], request: int, response: int) -> None:
        ctx.set(response)
        ctx.emit(out, f"call-{ctx.key}", request)

    def ask(ctx: Context[str, int], request: int) -> None:
        ctx.call(call, request)

    def pass_on(ctx: Context[str, int], sent: int) -> None:
        ctx.emit(out, ctx.key, sent)

    call: Call[str, int, int, int] = Call(
        "second", answer, request=Long(), response=Long(), then=answered, at_once=job.clients,
        timeout=timedelta(seconds=30),
    )  # fmt: skip
    return Group(job.group, Input(requests, ask), Input(beside, pass_on), call, Output(out), Persist(Long()))


def main() -> None:
    job = Job.from_environment(os.environ)
    processor: Any = App(Kafka(job.broker), Path(job.state_dir)).processor(
        graph(job),
        instance_id=job.instance,
        commit_interval=job.commit_ms / 1000,
        guarantee=Guarantee(job.guarantee),
    )
    mark("first")
    processor.run()


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    main()
