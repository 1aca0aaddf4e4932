"""A group that tells late records, also as a process of its own to be killed at a failpoint.

`timed.py SERVERS PREFIX STATE FAILPOINT`
"""

import sys
from pathlib import Path

from streamtable import App, Context, EventTime, Group, Input, Kafka, Long, Output, Persist, Stream, String

WINDOW_MS = 1_000


def group_of(prefix: str, event_time: EventTime) -> Group[str, int]:
    """Events are their times; each output says whether its event came too late for a window of a second."""
    out = Stream(f"{prefix}-out", String(), String())

    def tell(ctx: Context[str, int], event: str) -> None:
        late = int(event) + WINDOW_MS <= ctx.late_before_ms
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(out, ctx.key, f"{ctx.topic[-3:]}:{ctx.offset}:{'late' if late else 'in time'}")

    inputs = (
        Input(Stream(f"{prefix}-{name}", String(), String()), tell, time=int) for name in ("in1", "in2")
    )
    return Group(f"{prefix}-g", *inputs, Output(out), Persist(Long()), event_time)


def main() -> None:
    servers, prefix, state, failpoint = sys.argv[1:]
    group = group_of(prefix, EventTime(idle_after=None))
    App(Kafka(servers), Path(state)).processor(
        group, instance_id="i", commit_interval=0.05, failpoint=failpoint
    ).run()


if __name__ == "__main__":
    main()
