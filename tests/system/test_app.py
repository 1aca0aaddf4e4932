"""An App on a real broker: topics for development, groups, and watches that a coroutine reads."""

import asyncio
import threading
from contextlib import ExitStack

from tests.system.bench import Bench, until

from streamtable import App, Context, Group, Input, Long, Persist, Stream, String


def test_from_no_topics_to_changes_that_a_coroutine_is_told_of(bench: Bench) -> None:
    def count(ctx: Context[str, int], _: str) -> None:
        ctx.set((ctx.value or 0) + 1)

    stream = Stream(bench.name("in"), String(), String())
    group: Group[str, int] = Group(bench.name("g"), Input(stream, count), Persist(Long()))
    with App(bench.kafka, bench.folder) as app, ExitStack() as stack:
        app.create_topics(group, partitions=2)
        app.create_topics(group, partitions=5)  # existing topics stay as they are
        until(lambda: len(bench.cluster.topics([group.table.name, stream.name])) == 2, "topics exist")
        assert {topic.partitions for topic in bench.cluster.topics(group.input_topics).values()} == {2}
        assert bench.cluster.topics([group.table.name])[group.table.name].compacted
        processor = app.processor(group, instance_id="i", commit_interval=0.05)
        thread = threading.Thread(target=processor.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(processor.stop)
        view = app.view(group.table)
        view.wait_ready(30)

        async def write_and_read() -> list[tuple[str, int | None]]:
            watch = view.watch()
            found = []
            async with asyncio.timeout(30):
                for number in range(3):
                    ack = await asyncio.to_thread(emitter.emit_now, "alice", str(number))
                    await view.wait_for_async(ack, 20)
                    assert view.get("alice") == number + 1
                    change = await watch.next_async()
                    assert change is not None
                    found.append((change.key, change.value))
                watch.close()
                found += [(change.key, change.value) async for change in watch]
            return found

        with app.emitter(stream) as emitter:
            assert asyncio.run(write_and_read()) == [("alice", 1), ("alice", 2), ("alice", 3)]


def test_two_processors_without_an_instance_id_share_the_work(bench: Bench) -> None:
    group = bench.counting(partitions=2)
    with ExitStack() as stack:
        processors = []
        for name in ("one", "two"):
            app = stack.enter_context(App(bench.kafka, bench.folder / name))
            processors.append(app.processor(group, commit_interval=0.05))
            thread = threading.Thread(target=processors[-1].run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(processors[-1].stop)
        until(lambda: [len(each.working) for each in processors] == [1, 1], "each has a partition")
        view = stack.enter_context(App(bench.kafka, bench.folder)).view(group.table)
        bench.send(bench.name("in"), *((f"k{n}", "x") for n in range(20)))
        view.wait_ready(60)
        until(lambda: len(view.range()) == 20, "all is counted")  # a processor that is fenced counts nothing
        assert [len(each.working) for each in processors] == [1, 1]
