"""The page on extensions: each of its programs runs, and gives the results that a reader would compute by hand."""

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pytest

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import (
    Context,
    Decoded,
    Group,
    Input,
    Json,
    Long,
    OnError,
    Persist,
    Stream,
    String,
    decode_each,
)
from streamtable.errors import DeserializationError, SerializationError
from streamtable.flow import Windowed
from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/extend.md").read_text()
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def program(section: str) -> dict[str, Any]:
    (text,) = re.findall(rf"^## {section}\n.*?^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    page: dict[str, Any] = {}
    exec(text, page)
    return page


def test_the_codec_of_the_page_carries_points_and_refuses_all_else(tester: Tester) -> None:
    page = program("A codec")
    places: Stream[str, Any] = page["PLACES"]
    codec = page["Point"]()
    with pytest.raises(SerializationError, match="a point has two numbers, x and y, and this is"):
        codec.encode(("north", 1.0))
    with pytest.raises(DeserializationError, match="a point has 16 bytes, and this has 3"):
        codec.decode(b"abc")
    seen: list[Any] = []

    def see(ctx: Context[str, Any], point: Any) -> None:
        ctx.set(point)
        seen.append(point)

    group: Group[str, Any] = Group("g", Input(places, see, on_error=OnError.DEAD_LETTER), Persist(codec))
    tester.run(group)
    tester.emit(places, "mill", (1.5, -2.0))
    tester.emit_raw(places.name, b"mill", b"abc")
    assert seen == [(1.5, -2.0)]
    assert tester.table(group) == {"mill": (1.5, -2.0)}
    assert [letter.value for letter in tester.dead_letters(group)] == [b"abc"]


def test_a_codec_with_the_spans_of_the_page_finds_the_keys_of_a_range(tester: Tester) -> None:
    (spans,) = re.findall(r"`spans` too\n\(`(return .*)`\)", PAGE)
    names: dict[str, Any] = {}
    exec(f"def spans(self, start, end):\n    {spans}", names)

    class Number:
        def encode(self, value: int) -> bytes:
            return pack(">Q", value + 2**63)

        def decode(self, data: bytes) -> int:
            return int(unpack(">Q", data)[0]) - 2**63

        def decode_many(self, data: Sequence[bytes | None]) -> Decoded[int]:
            return decode_each(self.decode, data)

        spans = names["spans"]

    numbers: Stream[int, Any] = Stream("numbers", Number(), Json())
    group: Group[int, Any] = Group("g", Input(numbers, lambda ctx, value: ctx.set(value)), Persist(Json()))
    tester.run(group)
    tester.emit_many(numbers, [(number, number) for number in (-2, -1, 0, 1, 2)])
    view = tester.view(group.table)
    assert [key for key, _ in view.range(0, 2)] == [0, 1]
    assert [key for key, _ in view.range(-2, 0)] == [-2, -1]
    assert [key for key, _ in view.range(None, 0)] == [-2, -1]
    assert [key for key, _ in view.range(0, None)] == [0, 1, 2]


def test_the_aggregate_of_the_page_keeps_distinct_values(tester: Tester) -> None:
    page = program("An aggregate")
    tester.run(page["flow"])
    tester.emit_many(page["VISITS"], [("ada", "/b"), ("ada", "/a"), ("bob", "/a"), ("ada", "/b")])
    assert tester.table(page["pages"].table) == {"ada": ["/a", "/b"], "bob": ["/a"]}


def test_the_windows_of_the_page_are_shifts_from_six_in_the_morning(tester: Tester) -> None:
    page = program("A window")
    tester.run(page["flow"])
    hours = {"before six": 5.9, "at six": 6, "at two": 14, "at ten": 22, "at night": 29}
    for at in hours.values():
        tester.emit(page["READINGS"], "mill", "1", timestamp_ms=20 * DAY_MS + int(at * HOUR_MS))
    rows = tester.table(page["per_shift"].table)
    begins = {20 * DAY_MS + hour * HOUR_MS: n for hour, n in {-2: 1, 6: 1, 14: 1, 22: 2}.items()}
    assert rows == {Windowed("mill", at, at + 8 * HOUR_MS): n for at, n in begins.items()}


def test_the_task_of_the_page_writes_the_sizes_of_its_batches(tester: Tester) -> None:
    page = program("A task")
    tasks = page["BatchTasks"]
    tester.run(page["BATCHES"], tasks=lambda clock, failpoint: tasks())
    tester.emit_many(page["ORDERS"], [(str(number), {}) for number in range(5)])
    tester.advance(2)
    tester.emit_many(page["ORDERS"], [(str(number), {}) for number in range(3)])
    tester.advance(2)
    sizes: list[Any] = [record.value for record in tester.records(page["SIZES"])]
    assert sum(sizes) == 8
    assert len(sizes) < 8


def test_a_group_and_a_view_keep_their_rows_in_the_store_of_the_page(broker: Broker, tmp_path: Path) -> None:
    made = program("A store")["app"]
    topics = Topics(broker.bootstrap_servers)
    clicks = Stream(topics.create("clicks", partitions=2), String(), Json())

    def count(ctx: Context[str, int], _: Any) -> None:
        ctx.set((ctx.value or 0) + 1)

    group = Group(f"{clicks.name}-count", Input(clicks, count), Persist(Long()))

    def counted(times: int) -> None:
        with made(broker.bootstrap_servers, tmp_path) as app:
            app.create_topics(group, partitions=2)
            processor = app.processor(group)
            running = threading.Thread(target=processor.run)
            running.start()
            try:
                with app.emitter(clicks) as emitter:
                    for _ in range(3):
                        emitter.emit("ada", {})
                view = app.view(group.table)
                view.wait_ready(60)
                with view.watch("ada") as changes:
                    while (view.get("ada") or 0) < times:
                        next(iter(changes))
                assert view.get("ada") == times
            finally:
                processor.stop()
                running.join(60)

    try:
        counted(3)
        counted(6)
    finally:
        topics.delete_all()
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.sqlite"))
    assert len([path for path in found if path.startswith(group.name)]) == 2
    assert [path for path in found if path.startswith("views/")]
