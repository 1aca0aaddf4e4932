"""A flow on a real broker: several groups in one process, windows that close, and a kill in between."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tests.system.bench import Bench, until

from streamtable import App, EventTime, Long, Stream, String
from streamtable.flow import Flow, Tumbling, Windowed, WindowedKey, WindowedTable

MINUTE_MS = 60_000


def minutes(flow: Flow, pages: Stream[str, str], out: Stream[Windowed[str], int]) -> WindowedTable[str, int]:
    """Count views by page and minute: a page is a value, and the key a visitor."""
    window = Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10))
    per_minute = flow.stream(pages).group_by("by-page", str, key=String()).window(window).count("per-minute")
    per_minute.final().to(out)
    return per_minute


@contextmanager
def running(app: App, flow: Flow) -> Iterator[None]:
    """All groups of the flow in one process, as `App.run` runs them, until the block ends."""
    processors = [app.processor(group, commit_interval=0.05) for group in flow.groups]
    threads = [threading.Thread(target=processor.run) for processor in processors]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for processor in processors:
            processor.stop()
        for thread in threads:
            thread.join()


def test_views_are_counted_by_page_and_minute_across_a_repartition_and_a_restart(bench: Bench) -> None:
    pages = Stream(bench.name("views"), String(), String())
    out = Stream(bench.name("minutes"), WindowedKey(String(), MINUTE_MS), Long())
    # Not idle, however long this machine takes: the wall clock is an hour ahead of these views.
    flow = Flow(bench.name("flow"), event_time=EventTime(idle_after=None))
    per_minute = minutes(flow, pages, out)
    began = (int(time.time() * 1000) - 3_600_000) // MINUTE_MS * MINUTE_MS
    with App(bench.kafka, bench.folder) as app, app.emitter(pages) as emitter:
        app.create_topics(flow, partitions=2)
        needed = [per_minute.table.name, out.name, *flow.groups[1].input_topics]
        until(lambda: len(bench.cluster.topics(needed)) == len(needed), "topics exist")

        def visit(visitor: int, page: str, seconds: int) -> None:
            emitter.emit_now(f"visitor-{visitor}", page, timestamp_ms=began + seconds * 1000)

        def found() -> dict[tuple[str, int], int]:
            table = per_minute.table
            rows = {record.key: record.value for record in bench.read(table.name)}
            return {
                (key.key, (key.start_ms - began) // MINUTE_MS): Long().decode(row)
                for key, row in ((table.key.decode(k), row) for k, row in rows.items() if k and row)
            }

        with running(app, flow):
            for visitor in range(10):
                visit(visitor, "home" if visitor % 3 else "help", 10 + visitor)
            until(lambda: found() == {("home", 0): 6, ("help", 0): 4}, "the first minute is counted")
        assert bench.read(out.name) == []  # no window has closed
        with running(app, flow):
            for visitor in range(4):
                visit(visitor, "home", 40)
            # The partitions of the input are worked off in any order: what comes later must not overtake.
            until(lambda: found()["home", 0] == 10, "all of the first minute are counted")
            for visitor in range(10):
                visit(visitor, "home" if visitor % 2 else "help", 90)
            until(lambda: len(bench.read(out.name)) >= 2, "the first minute is closed")
        closed = [(out.key.decode(each.key or b""), each.value) for each in bench.read(out.name)]
        assert sorted((key.key, key.start_ms, value) for key, value in closed) == [
            ("help", began, Long().encode(4)),
            ("home", began, Long().encode(10)),
        ]


PROGRAM = """
import sys
from streamtable import App, String, Stream
from streamtable.flow import Flow

flow = Flow(sys.argv[2])
words = flow.stream(Stream(sys.argv[2] + "-words", String(), String()))
words.group_by("by-word", str, key=String()).count("counts")
app = App(sys.argv[1], sys.argv[3])
app.create_topics(flow, partitions=1)
app.run(flow, commit_interval=0.05)
"""


def test_app_run_runs_all_groups_of_a_flow_until_a_signal(bench: Bench, tmp_path: Path) -> None:
    name = bench.name("flow")
    words = Stream(f"{name}-words", String(), String())
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with App(bench.kafka, bench.folder) as app:
        command = [sys.executable, str(program), bench.kafka.bootstrap_servers, name, str(tmp_path / "state")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                topic = f"{name}-by-word-counts"
                until(lambda: len(bench.cluster.topics([topic, words.name])) == 2, "topics are there")
                with app.emitter(words) as emitter:
                    for word in ("a", "b", "a"):
                        emitter.emit_now("key", word)
                until(
                    lambda: (
                        {each.key: each.value for each in bench.read(topic)}
                        == {b"a": Long().encode(2), b"b": Long().encode(1)}
                    ),
                    "words are counted",
                )
            finally:
                process.terminate()
                _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
